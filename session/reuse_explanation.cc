// What comes first explains what comes after it: damage, then what the collection took, then a
// prompt that differs, then state that was never stored.
#include "session/reuse_explanation.h"

#include <algorithm>
#include <string>

namespace cairn::session {
namespace {

void set_cause(ReuseReport& report, MissCause cause, std::string detail) {
  report.cause = cause;
  report.detail = std::move(detail);
}

std::string because(const PromptComparison& comparison) {
  return comparison.detail + ": the prompt differs from token " +
         std::to_string(comparison.first_difference) + " on";
}

void set_difference(const PromptComparison& comparison, ReuseReport& report) {
  report.first_difference = comparison.first_difference;
  report.difference = comparison.difference;
}

}  // namespace

void explain_reuse(const SessionState::TurnInput& input, std::int64_t n_blocks_found,
                   ReuseReport& report) {
  const PromptComparison& comparison = input.comparison;
  const std::int64_t common = comparison.common_tokens;
  const std::int64_t reused = report.prompt_tokens - report.prefilled;
  const std::int64_t n_stored_blocks = std::min(input.stored_blocks, common / kBlockTokens);
  if (comparison.first_difference >= 0) set_difference(comparison, report);
  report.lost_tokens = repeated_after(comparison, reused);
  const bool all_reused = report.lost_tokens == 0;
  report.lost_ms = static_cast<double>(report.lost_tokens) * input.us_per_token / 1000;
  if (report.cause == MissCause::kCorrupt) {
    report.detail = "stored state did not check and was dropped; it is computed again";
  } else if (report.prefilled == 0) {
    const bool replays = report.replayed > 0;
    set_cause(report, replays ? MissCause::kReplayNeeded : MissCause::kNone,
              replays ? "all tokens were reused; their windows are computed again"
                      : "everything was reused");
  } else if (input.other_model) {
    set_cause(report, MissCause::kOtherModel,
              "the stored state is of the model that the session had before");
  } else if (n_blocks_found < n_stored_blocks) {
    set_cause(report, MissCause::kEvicted,
              "of " + std::to_string(n_stored_blocks * kBlockTokens) +
                  " tokens whose state was stored, that of " + std::to_string(reused) +
                  " was left by the collection");
  } else if (comparison.cause != MissCause::kNone && comparison.cause != MissCause::kHeadMoved &&
             reused <= common) {
    set_cause(report, comparison.cause, because(comparison));
  } else if (!all_reused && comparison.moved) {
    set_cause(report, MissCause::kHeadMoved,
              "the session went back; of " + std::to_string(common) +
                  " tokens before that place the store holds the state of " +
                  std::to_string(reused));
  } else if (!all_reused) {
    set_cause(report, MissCause::kNotStored,
              "of " + std::to_string(common) + " known tokens the store holds the state of " +
                  std::to_string(reused));
  } else {
    const bool replays = report.replayed > 0;
    set_cause(report, replays ? MissCause::kReplayNeeded : MissCause::kNewTokens,
              replays ? "the windows of reused tokens are computed again"
                      : "the rest of the prompt is new");
  }
}

}  // namespace cairn::session
