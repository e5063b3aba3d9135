// The decode phase of a turn: which token is said next, and drafts of those after it, verified in
// the same pass. A draft is right if it is what would be drawn without it. The draw of a position
// depends on the seed, the tokens before it and the logits there, which a pass of several rows
// computes to the same bit: so what is said does not depend on drafts, and each is accepted as
// often as the rejection rule of spec/dspark.md section 5 accepts a draft that is the likeliest
// token.
#include <algorithm>
#include <utility>

#include "engine/sampler.h"
#include "session/turn_state.h"

namespace cairn::session {

std::optional<EndReason> TurnState::parser_stop() const {
  switch (parser_.stopped()) {
    case engine::OutputStop::kStopString:
      return EndReason::kStopString;
    case engine::OutputStop::kCallLimit:
      return EndReason::kCallLimit;
    case engine::OutputStop::kNone:
      break;
  }
  return std::nullopt;
}

std::optional<EndReason> TurnState::reached_limit() const {
  const TurnLimits& limits = input_.turn.started.limits;
  const std::int64_t n_context = static_cast<std::int64_t>(input_.prompt.size()) + n_generated_;
  if (const auto stopped = parser_stop()) return stopped;
  if (n_generated_ >= input_.turn.started.max_tokens) return EndReason::kLength;
  if (n_context >= session_->model()->info().max_context) return EndReason::kLength;
  if (limits.context_tokens > 0 && n_context >= limits.context_tokens) {
    return EndReason::kContextLimit;
  }
  return std::nullopt;
}

// The end of the reasoning where it has been long enough; no rule stands against that. Where the
// end is spelled in several tokens, each of them counts as reasoning.
std::optional<TokenId> TurnState::token_by_limit() const {
  const std::int32_t limit = input_.turn.started.limits.reasoning_tokens;
  if (limit <= 0 || !parser_.in_reasoning()) return std::nullopt;
  const std::int64_t n_over = parser_.output().reasoning_tokens - begun_reasoning_ - limit;
  const std::vector<TokenId>& ending = session_->model()->think_ending();
  if (n_over < 0 || n_over >= std::ssize(ending)) return std::nullopt;
  return ending[static_cast<std::size_t>(n_over)];
}

std::optional<TokenId> TurnState::token_by_host() {
  is_forced_ = end_thinking_.exchange(false) && parser_.in_reasoning();
  if (!is_forced_) return std::nullopt;
  return session_->model()->think_end();
}

Result<TokenId> TurnState::sampled_token(std::span<const float> logits,
                                         std::span<const TokenId> tokens) {
  const auto mask = constraint_ ? constraint_->mask() : nullptr;
  if (mask != nullptr && std::ranges::all_of(*mask, [](auto word) { return word == 0; })) {
    return Status(StatusCode::kUnsupported,
                  "the output rules allow no token after " + std::to_string(n_generated_),
                  "simplify the schema, or start another turn without these rules");
  }
  return engine::sample(logits, tokens, session_->model()->masked_ids(),
                        input_.turn.started.sampling, std::ssize(tokens),
                        mask != nullptr ? *mask : std::span<const std::uint64_t>());
}

Result<TokenId> TurnState::next_token() {
  const std::optional<TokenId> drawn = std::exchange(drawn_, std::nullopt);
  const std::optional<TokenId> by_host = token_by_host();
  if (const auto by_limit = token_by_limit()) return *by_limit;
  if (by_host) return *by_host;
  if (drawn) return *drawn;
  const engine::Sequence& sequence = session_->live().sequence();
  return sampled_token(sequence.logits(), sequence.tokens());
}

Status TurnState::say_next(std::optional<engine::DecodeRow>& row) {
  if (const auto reason = reached_limit()) return finish(*reason);
  CAIRN_ASSIGN_OR_RETURN(const TokenId token, next_token());
  CAIRN_RETURN_IF_ERROR(say(token));
  CAIRN_RETURN_IF_ERROR(flush_if_due());
  if (token == session_->model()->eos()) return finish(EndReason::kStop);
  if (reached_limit()) return {};
  row = session_->live().decode_row(token, stop_requested_);
  return propose(*row);
}

Status TurnState::say(TokenId token) {
  if (constraint_) CAIRN_RETURN_IF_ERROR(constraint_->advance(token));
  if (n_generated_ == usage_.resumed_tokens) usage_.first_token_ms = ms_since(created_);
  ++n_generated_;
  unlogged_.push_back(token);
  std::vector<engine::OutputEvent> events;
  parser_.push(token, events);
  const bool synced = session_->durability() == SessionDurability::kSynced;
  if (!synced) stream_->say({&token, 1}, /*replayed=*/false);
  return {};
}

Status TurnState::propose(engine::DecodeRow& row) {
  const engine::LoadedModel& model = *session_->model();
  const bool is_fixed = model.options().drafts > 0;
  std::int64_t n = std::min<std::int64_t>(model.max_drafts(), row.sequence->max_drafts());
  n = std::min(n, input_.turn.started.max_tokens - n_generated_);
  if (n <= 0) return {};
  // Until it is known how long a step takes, and while they do not pay.
  if (!is_fixed && model.step_times().ms(1) == 0) return {};
  if (!is_fixed && !model.draft_guard().may_propose()) {
    ++usage_.drafts.withheld;
    return {};
  }
  const Clock::time_point start = Clock::now();
  proposal_.tokens.clear();
  proposal_.confidence.clear();
  CAIRN_RETURN_IF_ERROR(model.propose()(*row.sequence, row.token, proposal_));
  proposal_.tokens.resize(std::min(proposal_.tokens.size(), static_cast<std::size_t>(n)));
  leave_out_what_rules_forbid();
  row.drafts = proposal_.tokens;
  survival_.clear();
  if (!is_fixed && proposal_.confidence.size() >= proposal_.tokens.size()) {
    double survival = 1;
    for (std::size_t i = 0; i < proposal_.tokens.size(); ++i) {
      survival *= model.draft_calibration().probability(i, proposal_.confidence[i]);
      survival_.push_back(survival);
    }
    row.survival = survival_;
  }
  row.draft_ms = ms_since(start);
  usage_.drafts.draft_ms += row.draft_ms;
  return {};
}

// They would be rejected. What is asked of the rules here is asked again, and kept by them.
void TurnState::leave_out_what_rules_forbid() {
  if (!constraint_) return;
  engine::ConstraintState constraint = *constraint_;
  std::vector<TokenId>& tokens = proposal_.tokens;
  const auto forbidden =
      std::ranges::find_if(tokens, [&](TokenId token) { return !constraint.advance(token).ok(); });
  tokens.erase(forbidden, tokens.end());
}

Status TurnState::say_drafts(const engine::DecodeRow& row) {
  LiveSequence& live = session_->live();
  const TokenId eos = session_->model()->eos();
  std::int64_t n_accepted = 0, n_rows = 1;
  // A wish of the host is the next step's.
  for (const TokenId draft : row.drafts) {
    if (end_thinking_) break;
    std::optional<TokenId> token = token_by_limit();
    if (!token) {
      const Result<TokenId> drawn = sampled_token(live.sequence().verified_logits(n_accepted),
                                                  live.sequence().verified_tokens(n_accepted));
      if (!drawn.ok()) break;  // the next step fails likewise
      token = drawn_ = *drawn;
    }
    if (*token != draft) break;
    drawn_.reset();
    CAIRN_RETURN_IF_ERROR(say(draft));
    ++n_accepted;
    // The last token of a turn is not computed.
    if (draft == eos || reached_limit()) break;
    ++n_rows;
  }
  live.accept(n_rows);
  note_round(row, n_accepted);
  CAIRN_RETURN_IF_ERROR(flush_if_due());
  const bool is_over =
      n_accepted > 0 && row.drafts[static_cast<std::size_t>(n_accepted - 1)] == eos;
  return is_over ? finish(EndReason::kStop) : Status();
}

void TurnState::note_round(const engine::DecodeRow& row, std::int64_t n_accepted) {
  const auto n_verified = row.drafts.size();
  if (n_verified > 0) {
    DraftReport& report = usage_.drafts;
    ++report.rounds;
    report.proposed += static_cast<std::int64_t>(n_verified);
    report.accepted += n_accepted;
    ++report.rounds_by_accepted[static_cast<std::size_t>(n_accepted)];
    report.verify_ms += row.pass_ms;
  }
  const engine::LoadedModel& model = *session_->model();
  if (row.draft_ms > 0) model.draft_guard().note(row.round_ms, 1 + n_accepted, row.plain_ms);
  if (row.survival.empty()) return;
  model.draft_calibration().note(std::span(proposal_.confidence).first(n_verified),
                                 static_cast<std::size_t>(n_accepted));
}

}  // namespace cairn::session
