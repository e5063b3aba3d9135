// Whether drafts are worth their time, and how many of them (spec/dspark.md section 7). Times
// decide here, so two runs may choose differently; what is said never depends on it. Confined to
// the runtime's strand.
#ifndef CAIRN_ENGINE_DRAFT_SCHEDULE_H_
#define CAIRN_ENGINE_DRAFT_SCHEDULE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cairn/engine.h"
#include "cairn/message.h"
#include "cairn/status.h"

namespace cairn::engine {

class Sequence;
struct DecodeRow;
struct DraftProposal;

// Fills in a proposal for what comes after `anchor`, the token chosen for position() of the
// sequence, which is ready. Without confidence, all of it is verified.
using Propose = std::function<Status(const Sequence& sequence, TokenId anchor, DraftProposal& out)>;

// How long a pass takes by its number of rows: averages of those that were measured.
class StepTimes {
 public:
  void note(std::int64_t n_rows, double ms);
  // Between measured numbers of rows, and beyond them, along a line. 0 = nothing is known yet.
  double ms(std::int64_t n_rows) const;

 private:
  static constexpr std::int64_t kRows = 160;
  struct Average {
    double ms = 0;
    std::int64_t n = 0;
  };
  const Average& of(std::int64_t n_rows) const {
    return by_rows_[static_cast<std::size_t>(n_rows)];
  }

  std::array<Average, kRows> by_rows_{};
};

// Turns a confidence (a logit) into a probability, by what became of earlier drafts at the same
// place in their proposals: a logistic function of it, fitted step by step.
class DraftCalibration {
 public:
  double probability(std::size_t place, double confidence) const;
  // Of a verified proposal the first `n_accepted` were right, and the next one, if any, was wrong.
  void note(std::span<const float> confidence, std::size_t n_accepted);

 private:
  struct Line {
    double scale = 1, offset = 0;
  };
  std::array<Line, kMaxDrafts> places_{};
};

// Stops proposing where that has cost a few plain steps of time more than it saved, and tries again
// after a while, each time a longer one. Of a model, not of a turn: an agent's turns are too short
// for each to find out.
class DraftGuard {
 public:
  // Before each step; false: a step without a proposal.
  bool may_propose();
  // A step with a proposal took `ms`, the proposal included, and said `n_tokens`; without it, each
  // of them takes `plain_ms`.
  void note(double ms, std::int64_t n_tokens, double plain_ms);
  bool is_paused() const { return n_paused_ > 0; }

 private:
  static constexpr std::int64_t kFirstPause = 64, kLongestPause = 1024;  // steps
  static constexpr std::int64_t kProven = 64;                            // rounds
  static constexpr std::int64_t kPlainStepEvery = 64;  // so that its time stays known
  // Plain steps' time: what a trial may lose, what is kept of gains, what one round can lose.
  static constexpr double kTrial = 4, kMost = 12, kWorstRound = 3;

  double balance_ = kTrial;  // saved less spent, in plain steps
  std::int64_t n_rounds_ = 0, n_steps_ = 0, n_paused_ = 0, pause_ = kFirstPause;
};

// Keeps of the rows' drafts those that make the pass of all of them say the most tokens for its
// time: the likeliest first, whosever they are.
void choose_drafts(std::span<DecodeRow> rows, const StepTimes& times);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_DRAFT_SCHEDULE_H_
