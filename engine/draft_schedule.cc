#include "engine/draft_schedule.h"

#include <algorithm>
#include <cmath>

#include "engine/decode_batch.h"

namespace cairn::engine {

// --- Times.

void StepTimes::note(std::int64_t n_rows, double ms) {
  constexpr std::int64_t kMemory = 16;  // passes
  constexpr std::int64_t kFirst = 3;    // in cold memory one may take many times as long
  if (n_rows < 1 || n_rows >= kRows) return;
  Average& average = by_rows_[static_cast<std::size_t>(n_rows)];
  if (++average.n <= kFirst) {
    average.ms = average.n == 1 ? ms : std::min(average.ms, ms);
    return;
  }
  const double bounded = std::min(ms, 2 * average.ms);  // other programs run too
  average.ms += (bounded - average.ms) / static_cast<double>(std::min(average.n, kMemory));
}

double StepTimes::ms(std::int64_t n_rows) const {
  // Where nothing else is known, a row more costs a tenth of a step of one.
  constexpr double kRowShare = 0.1;
  std::int64_t first = 0, below = 0, above = 0;  // of those that were measured
  for (std::int64_t rows = 1; rows < kRows && above == 0; ++rows) {
    if (of(rows).n == 0) continue;
    if (first == 0) first = rows;
    if (rows <= n_rows) below = rows;
    if (rows >= n_rows) above = rows;
  }
  const auto slope = [&](std::int64_t from, std::int64_t to) {
    return (of(to).ms - of(from).ms) / static_cast<double>(to - from);
  };
  if (first == 0) return 0;
  if (below == 0) return of(above).ms;
  if (below == above) return of(below).ms;
  const double row_ms = above > 0       ? slope(below, above)
                        : first < below ? std::max(0.0, slope(first, below))
                                        : kRowShare * of(below).ms;
  return of(below).ms + row_ms * static_cast<double>(n_rows - below);
}

// --- Calibration.

double DraftCalibration::probability(std::size_t place, double confidence) const {
  const Line& line = places_[std::min(place, places_.size() - 1)];
  return 1 / (1 + std::exp(-(line.scale * confidence + line.offset)));
}

void DraftCalibration::note(std::span<const float> confidence, std::size_t n_accepted) {
  constexpr double kRate = 0.02, kScaleMax = 4;
  for (std::size_t place = 0; place < std::min(confidence.size(), n_accepted + 1); ++place) {
    const double x = confidence[place];
    const double error = (place < n_accepted ? 1.0 : 0.0) - probability(place, confidence[place]);
    Line& line = places_[std::min(place, places_.size() - 1)];
    // The steepest descent of the log loss, with the input scaled so that a step cannot overshoot.
    line.scale = std::clamp(line.scale + kRate * error * x / (1 + std::fabs(x)), 0.0, kScaleMax);
    line.offset = std::clamp(line.offset + kRate * error, -kScaleMax, kScaleMax);
  }
}

// --- Guard.

bool DraftGuard::may_propose() {
  ++n_steps_;
  if (n_paused_ > 0) {
    --n_paused_;
    return false;
  }
  return n_steps_ % kPlainStepEvery != 0;
}

void DraftGuard::note(double ms, std::int64_t n_tokens, double plain_ms) {
  if (plain_ms <= 0) return;
  // What takes many times as long was a first reading from disk, or another program.
  const double saved = static_cast<double>(n_tokens) - ms / plain_ms;
  balance_ = std::min(balance_ + std::max(saved, -kWorstRound), kMost);
  if (++n_rounds_ >= kProven) pause_ = kFirstPause;
  if (balance_ > 0) return;
  n_paused_ = pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  balance_ = kTrial;
  n_rounds_ = 0;
}

// --- Choice.

void choose_drafts(std::span<DecodeRow> rows, const StepTimes& times) {
  struct Candidate {
    double survival;
    std::size_t row, at;
  };
  std::array<Candidate, kMaxDecodeRows * kMaxDrafts> candidates;
  std::size_t n_candidates = 0;
  std::int64_t n_rows = 0;  // of the pass whatever is chosen
  double spent_ms = 0;      // on the proposals
  for (std::size_t i = 0; i < rows.size(); ++i) {
    n_rows += 1;
    spent_ms += rows[i].draft_ms;
    if (rows[i].survival.empty()) {
      n_rows += std::ssize(rows[i].drafts);
      continue;
    }
    const std::size_t n = std::min(rows[i].drafts.size(), rows[i].survival.size());
    for (std::size_t at = 0; at < n && n_candidates < candidates.size(); ++at) {
      candidates[n_candidates++] = {rows[i].survival[at], i, at};
    }
    rows[i].drafts = {rows[i].drafts.data(), 0};
  }
  // Of one row a later draft is never likelier than an earlier one, so they come in turn.
  const std::span all(candidates.data(), n_candidates);
  std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
    return a.survival != b.survival ? a.survival > b.survival : a.at < b.at;
  });
  double expected = static_cast<double>(rows.size());
  const auto speed = [&] { return expected / (spent_ms + times.ms(n_rows)); };
  double best = speed();
  std::size_t n_best = 0;
  for (std::size_t n = 1; n <= n_candidates; ++n) {
    expected += all[n - 1].survival;
    ++n_rows;
    if (speed() <= best) continue;
    best = speed();
    n_best = n;
  }
  for (const Candidate& chosen : all.first(n_best)) {
    std::span<const TokenId>& drafts = rows[chosen.row].drafts;
    drafts = {drafts.data(), drafts.size() + 1};
  }
}

}  // namespace cairn::engine
