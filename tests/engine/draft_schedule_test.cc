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

// Steps until `n_tokens` are said, and the time that they take. Of the four drafts of a round as
// many are right as come before the first of which a die says otherwise.
double time_of(DraftGuard& guard, int n_tokens, double round_ms, double right,
               std::mt19937& random) {
  std::bernoulli_distribution is_right(right);
  double ms = 0;
  for (int said = 0; said < n_tokens;) {
    if (!guard.may_propose()) {
      ms += 1;
      said += 1;
      continue;
    }
    int n = 1;
    while (n < 5 && is_right(random)) ++n;
    guard.note(round_ms, n, 1);
    ms += round_ms;
    said += n;
  }
  return ms;
}

// Tokens of a round on average.
double tokens_of(double right) { return (1 - std::pow(right, 5)) / (1 - right); }

TEST(DraftGuard, drafts_that_do_not_pay_cost_little) {
  for (const double right : {0.0, 0.3, 0.6, 0.8}) {
    for (const double loss : {1.02, 1.1, 1.25, 1.7, 2.5}) {
      std::mt19937 random(5);
      double ms = 0;
      constexpr int kLives = 20, kTokens = 2000;
      for (int life = 0; life < kLives; ++life) {
        DraftGuard guard;
        ms += time_of(guard, kTokens, loss * tokens_of(right), right, random);
      }
      EXPECT_LT(ms / kLives, kTokens / 0.97) << right << ", " << loss;
    }
  }
}

TEST(DraftGuard, drafts_that_pay_go_on) {
  for (const double right : {0.5, 0.7, 0.9}) {
    for (const double gain : {1.3, 1.6, 2.0}) {
      if (tokens_of(right) < gain) continue;  // a round takes no less than a step
      std::mt19937 random(6);
      double ms = 0;
      constexpr int kLives = 20, kTokens = 4000;
      for (int life = 0; life < kLives; ++life) {
        DraftGuard guard;
        ms += time_of(guard, kTokens, tokens_of(right) / gain, right, random);
      }
      EXPECT_GT(kLives * kTokens / ms, 1 + 0.8 * (gain - 1)) << right << ", " << gain;
    }
  }
}

TEST(DraftGuard, a_text_that_changes_gets_its_drafts_back) {
  DraftGuard guard;
  std::mt19937 random(7);
  time_of(guard, 4000, 1.25, 0, random);
  time_of(guard, 1100, 1.5, 0.8, random);  // past the longest pause
  EXPECT_LT(time_of(guard, 1000, 1.5, 0.8, random), 1000 / 1.6);
  time_of(guard, 100, 1.5, 0, random);
  EXPECT_TRUE(guard.is_paused()) << "and loses them again";
}

TEST(DraftGuard, one_interruption_stops_nothing) {
  DraftGuard guard;
  guard.note(1000, 1, 1);
  EXPECT_FALSE(guard.is_paused());
  EXPECT_TRUE(guard.may_propose());
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
