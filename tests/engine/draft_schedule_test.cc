// Which drafts are worth their time. Times are given here, not measured.
#include "engine/draft_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "engine/decode_batch.h"

namespace cairn::engine {
namespace {

TEST(StepTimes, what_was_not_measured_lies_on_a_line) {
  StepTimes times;
  EXPECT_EQ(times.ms(1), 0) << "nothing is known";
  times.note(2, 10);
  EXPECT_EQ(times.ms(1), 10);
  EXPECT_EQ(times.ms(2), 10);
  EXPECT_GT(times.ms(3), 10);
  times.note(6, 18);
  EXPECT_DOUBLE_EQ(times.ms(3), 12);
  EXPECT_DOUBLE_EQ(times.ms(5), 16);
  EXPECT_GT(times.ms(7), 18);
  times.note(100000, 1);  // more rows than any pass has
  EXPECT_GT(times.ms(100000), 18);
}

TEST(StepTimes, first_passes_in_cold_memory_and_interruptions_count_little) {
  StepTimes times;
  times.note(1, 500);
  for (int i = 0; i < 20; ++i) times.note(1, 10);
  EXPECT_DOUBLE_EQ(times.ms(1), 10);
  times.note(1, 10000);
  EXPECT_LT(times.ms(1), 12);
  for (int i = 0; i < 100; ++i) times.note(1, 15);  // the context grows
  EXPECT_NEAR(times.ms(1), 15, 0.1);
}

// Drafts whose logits are twice what they should be, and too high.
TEST(DraftCalibration, it_learns_what_confidence_is_worth) {
  DraftCalibration calibration;
  std::mt19937 random(3);
  std::normal_distribution<double> logits(0, 1.5);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto truth = [](double confidence) { return 1 / (1 + std::exp(-(confidence - 1) / 2)); };
  EXPECT_NEAR(calibration.probability(0, 0), 0.5, 1e-9) << "taken at its word at first";
  for (int i = 0; i < 20000; ++i) {
    std::vector<float> confidence;
    std::size_t n_accepted = 0;
    for (int place = 0; place < 3; ++place) {
      confidence.push_back(static_cast<float>(1 + 2 * logits(random)));
    }
    while (n_accepted < 3 && uniform(random) < truth(confidence[n_accepted])) ++n_accepted;
    calibration.note(confidence, n_accepted);
  }
  for (const std::size_t place : {0u, 1u, 2u}) {
    for (const double confidence : {-3.0, 0.0, 1.0, 3.0, 5.0}) {
      EXPECT_NEAR(calibration.probability(place, confidence), truth(confidence), 0.12)
          << place << ", " << confidence;
    }
  }
  EXPECT_NEAR(calibration.probability(4, 0), 0.5, 1e-9) << "of this place nothing was seen";
}

// Steps of a turn until `n_tokens` are said, and the time that they take.
double time_of(DraftGuard& guard, int n_tokens, double round_ms, int tokens_a_round) {
  double ms = 0;
  for (int said = 0; said < n_tokens;) {
    if (!guard.may_propose()) {
      ms += 1;
      said += 1;
      continue;
    }
    guard.note(round_ms, tokens_a_round, 1);
    ms += round_ms;
    said += tokens_a_round;
  }
  return ms;
}

TEST(DraftGuard, drafts_that_do_not_pay_cost_little) {
  DraftGuard guard;
  const double ms = time_of(guard, 4000, 1.25, 1);  // never right, and no step is spared
  EXPECT_LT(ms, 4000 / 0.97);
  EXPECT_GT(ms, 4000) << "it tries again now and then";
}

TEST(DraftGuard, drafts_that_pay_go_on) {
  DraftGuard guard;
  EXPECT_LT(time_of(guard, 4000, 1.8, 3), 4000 / 1.6);
  EXPECT_FALSE(guard.is_paused());
}

TEST(DraftGuard, a_text_that_changes_gets_its_drafts_back) {
  DraftGuard guard;
  time_of(guard, 4000, 1.25, 1);
  time_of(guard, 600, 1.8, 3);  // past the longest pause
  EXPECT_LT(time_of(guard, 1000, 1.8, 3), 1000 / 1.6);
  time_of(guard, 100, 1.25, 1);
  EXPECT_TRUE(guard.is_paused()) << "and loses them again";
}

// --- Choice.

struct Row {
  std::vector<TokenId> drafts = std::vector<TokenId>(5, 7);
  std::vector<double> survival;
  double draft_ms = 0;
};

std::vector<std::size_t> chosen(const std::vector<Row>& given, const StepTimes& times) {
  std::vector<DecodeRow> rows(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    rows[i].drafts = given[i].drafts;
    rows[i].survival = given[i].survival;
    rows[i].draft_ms = given[i].draft_ms;
  }
  choose_drafts(rows, times);
  std::vector<std::size_t> n;
  for (const DecodeRow& row : rows) n.push_back(row.drafts.size());
  return n;
}

double speed(const std::vector<Row>& rows, const std::vector<std::size_t>& n,
             const StepTimes& times) {
  double expected = 0, ms = 0;
  std::int64_t n_rows = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expected += 1;
    n_rows += 1 + static_cast<std::int64_t>(n[i]);
    ms += rows[i].draft_ms;
    for (std::size_t at = 0; at < n[i]; ++at) expected += rows[i].survival[at];
  }
  return expected / (ms + times.ms(n_rows));
}

TEST(ChooseDrafts, none_is_left_out_without_a_reason) {
  StepTimes times;
  EXPECT_EQ(chosen({{.survival = {0.9, 0.8, 0.7, 0.6, 0.5}}}, times)[0], 0u) << "no time is known";
  times.note(1, 10);
  times.note(6, 10.1);
  EXPECT_EQ(chosen({{.survival = {0.9, 0.8, 0.7, 0.6, 0.5}}}, times)[0], 5u);
  EXPECT_EQ(chosen({{}}, times)[0], 5u) << "nothing is said of them";
  times.note(8, 100);
  EXPECT_EQ(chosen({{.survival = {0.01, 0.001, 0, 0, 0}}, {}}, times)[1], 5u);
  StepTimes steep;
  steep.note(1, 10);
  steep.note(2, 20);
  EXPECT_EQ(chosen({{.survival = {0.9, 0.8, 0.7, 0.6, 0.5}}}, steep)[0], 0u);
}

TEST(ChooseDrafts, no_other_choice_is_expected_to_be_faster) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int round = 0; round < 200; ++round) {
    StepTimes times;
    double ms = 1 + 10 * uniform(random);
    for (std::int64_t n = 1; n <= 20; ++n) times.note(n, ms += uniform(random) * uniform(random));
    std::vector<Row> rows(1 + random() % 3);
    for (Row& row : rows) {
      double survival = 1;
      row.drafts.resize(random() % 6);
      for (std::size_t i = 0; i < row.drafts.size(); ++i) {
        row.survival.push_back(survival *= uniform(random));
      }
      row.draft_ms = uniform(random);
    }
    const double best = speed(rows, chosen(rows, times), times);
    std::vector<std::size_t> n(rows.size(), 0);
    for (;;) {  // all choices
      EXPECT_LE(speed(rows, n, times), best + 1e-12);
      std::size_t i = 0;
      while (i < n.size() && n[i] == rows[i].drafts.size()) n[i++] = 0;
      if (i == n.size()) break;
      ++n[i];
    }
  }
}

}  // namespace
}  // namespace cairn::engine
