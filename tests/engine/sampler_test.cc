#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace cairn::engine {
namespace {

SamplingParams plain(float temperature = 1.0f) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = 1.0f;
  return params;
}

std::vector<float> random_logits(std::mt19937& random, std::size_t n) {
  std::vector<float> logits(n);
  std::normal_distribution<float> normal(0, 2);
  for (float& x : logits) x = std::round(normal(random) * 4) / 4;  // some are equal
  return logits;
}

// Every token that some position draws.
std::set<TokenId> reachable(const std::vector<float>& logits, const SamplingParams& params,
                            const std::vector<TokenId>& masked = {}) {
  std::set<TokenId> tokens;
  for (std::int64_t position = 0; position < 20000; ++position) {
    tokens.insert(engine::sample(logits, {}, masked, params, position));
  }
  return tokens;
}

// The candidates that the parameters leave, by their definition.
std::set<TokenId> allowed(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](TokenId id) { return double{logits[static_cast<std::size_t>(id)]}; };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  if (params.top_k > 0 && order.size() > static_cast<std::size_t>(params.top_k)) {
    order.resize(static_cast<std::size_t>(params.top_k));
  }
  const auto weight = [&](TokenId id) {
    return std::exp((at(id) - at(order[0])) / double{params.temperature});
  };
  double total = 0, before = 0;
  for (const TokenId id : order) total += weight(id);
  std::set<TokenId> kept;
  for (const TokenId id : order) {  // the smallest set that reaches top_p
    if (before >= double{params.top_p} * total && !kept.empty()) break;
    if (weight(id) < double{params.min_p} && !kept.empty()) break;
    kept.insert(id);
    before += weight(id);
  }
  return kept;
}

TEST(Sampler, greedy_takes_the_lowest_id_of_the_best) {
  EXPECT_EQ(engine::sample(std::vector<float>{1, 3, 2, 3}, {}, {}, plain(0), 0), 1);
  EXPECT_EQ(engine::sample(std::vector<float>{-5, -5}, {}, {}, plain(0), 9), 0);
  EXPECT_EQ(
      engine::sample(std::vector<float>{1, 3, 2, 3}, {}, std::vector<TokenId>{1, 3}, plain(0), 0),
      2);
}

TEST(Sampler, candidates_are_those_of_the_definition) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 40; ++trial) {
    const std::vector<float> logits = random_logits(random, 12);
    SamplingParams params = plain(0.5f + static_cast<float>(trial % 4) * 0.5f);
    if (trial % 2) params.top_k = 1 + static_cast<int>(random() % 12);
    if (trial % 3) params.top_p = 0.3f + 0.1f * static_cast<float>(random() % 8);
    if (trial % 5 == 0) params.min_p = 0.05f * static_cast<float>(1 + random() % 10);
    const std::set<TokenId> expected = allowed(logits, params), drawn = reachable(logits, params);
    for (const TokenId id : drawn) EXPECT_TRUE(expected.contains(id)) << trial << " " << id;
    // All that are likely enough to be drawn in 20,000 draws are drawn.
    double total = 0;
    const auto weight = [&](TokenId id) {
      return std::exp(double{logits[static_cast<std::size_t>(id)]} / double{params.temperature});
    };
    for (const TokenId id : expected) total += weight(id);
    for (const TokenId id : expected) {
      EXPECT_TRUE(weight(id) / total < 1e-3 || drawn.contains(id)) << trial << " " << id;
    }
  }
}

TEST(Sampler, top_k_of_one_and_tiny_top_p_are_greedy) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<float> logits = random_logits(random, 50);
    const TokenId best = engine::sample(logits, {}, {}, plain(0), 0);
    SamplingParams one = plain();
    one.top_k = 1;
    EXPECT_EQ(engine::sample(logits, {}, {}, one, trial), best);
    SamplingParams little = plain();
    little.top_p = 1e-6f;
    EXPECT_EQ(engine::sample(logits, {}, {}, little, trial), best);
    SamplingParams only_best = plain();
    only_best.min_p = 1.0f;
    const TokenId drawn = engine::sample(logits, {}, {}, only_best, trial);
    EXPECT_EQ(logits[static_cast<std::size_t>(drawn)], logits[static_cast<std::size_t>(best)]);
  }
}

TEST(Sampler, draws_depend_on_seed_and_position_only) {
  std::mt19937 random(3);
  const std::vector<float> logits = random_logits(random, 100);
  int by_position = 0, by_seed = 0;
  for (std::int64_t position = 0; position < 300; ++position) {
    SamplingParams params = plain(2);
    params.seed = 77;
    const TokenId token = engine::sample(logits, {}, {}, params, position);
    EXPECT_EQ(engine::sample(logits, std::vector<TokenId>{1, 2, 3}, {}, params, position), token);
    by_position += engine::sample(logits, {}, {}, params, position + 1) != token;
    params.seed = 78;
    by_seed += engine::sample(logits, {}, {}, params, position) != token;
  }
  EXPECT_GT(by_position, 150);
  EXPECT_GT(by_seed, 150);
}

// Chi-square with n-1 degrees of freedom: mean n-1, variance 2(n-1); six deviations are allowed.
void expect_distribution(const std::vector<std::int64_t>& counts, const std::vector<double>& p) {
  const auto draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0LL));
  double chi_square = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * draws;
    ASSERT_GT(expected, 5);
    const double d = static_cast<double>(counts[i]) - expected;
    chi_square += d * d / expected;
  }
  const double freedom = static_cast<double>(p.size()) - 1;
  EXPECT_LT(chi_square, freedom + 6 * std::sqrt(2 * freedom));
}

TEST(Sampler, draws_follow_the_softmax) {
  const std::vector<float> logits = {0.5f, -1, 2, 0, 1.5f, -0.5f};
  for (const float temperature : {0.7f, 1.0f, 2.0f}) {
    std::vector<std::int64_t> counts(logits.size());
    for (std::int64_t position = 0; position < 50000; ++position) {
      ++counts[static_cast<std::size_t>(
          engine::sample(logits, {}, {}, plain(temperature), position))];
    }
    std::vector<double> p;
    for (const float x : logits) p.push_back(std::exp(double{x} / double{temperature}));
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& v : p) v /= total;
    expect_distribution(counts, p);
  }
}

TEST(Sampler, uniform_draws_are_uniform_along_positions_and_seeds) {
  std::vector<std::int64_t> along_positions(64), along_seeds(64);
  for (std::int64_t i = 0; i < 64000; ++i) {
    const double a = uniform_draw(5, i), b = uniform_draw(static_cast<std::uint64_t>(i), 5);
    ASSERT_TRUE(a >= 0 && a < 1 && b >= 0 && b < 1);
    ++along_positions[static_cast<std::size_t>(a * 64)];
    ++along_seeds[static_cast<std::size_t>(b * 64)];
  }
  expect_distribution(along_positions, std::vector<double>(64, 1.0 / 64));
  expect_distribution(along_seeds, std::vector<double>(64, 1.0 / 64));
}

TEST(Sampler, penalties_change_logits_as_documented) {
  const std::vector<float> logits = {2, 1.9f, -1};
  SamplingParams params = plain(0);
  const std::vector<TokenId> seen = {0, 0, 0};
  EXPECT_EQ(engine::sample(logits, seen, {}, params, 0), 0);
  params.repetition_penalty = 1.2f;  // 2 / 1.2 < 1.9
  EXPECT_EQ(engine::sample(logits, seen, {}, params, 0), 1);
  params = plain(0);
  params.presence_penalty = 0.05f;  // once, however often
  EXPECT_EQ(engine::sample(logits, seen, {}, params, 0), 0);
  params.presence_penalty = 0.2f;
  EXPECT_EQ(engine::sample(logits, seen, {}, params, 0), 1);
  params = plain(0);
  params.frequency_penalty = 0.05f;  // three times
  EXPECT_EQ(engine::sample(logits, seen, {}, params, 0), 1);
  EXPECT_EQ(engine::sample(logits, std::vector<TokenId>{0}, {}, params, 0), 0);
  params = plain(0);
  params.repetition_penalty = 3;  // a negative logit becomes smaller, not larger
  EXPECT_EQ(engine::sample(std::vector<float>{-1, -2}, std::vector<TokenId>{0}, {}, params, 0), 1);
}

TEST(Sampler, penalties_look_at_the_window_only) {
  const std::vector<float> logits = {2, 1};
  SamplingParams params = plain(0);
  params.presence_penalty = 5;
  params.penalty_window = 2;
  EXPECT_EQ(engine::sample(logits, std::vector<TokenId>{0, 1, 1}, {}, params, 0), 0);
  EXPECT_EQ(engine::sample(logits, std::vector<TokenId>{1, 0, 0}, {}, params, 0), 1);
  params.penalty_window = 0;
  EXPECT_EQ(engine::sample(logits, std::vector<TokenId>{0, 0, 0}, {}, params, 0), 0);
}

TEST(Sampler, masked_ids_are_never_drawn) {
  std::mt19937 random(4);
  const std::vector<float> logits = random_logits(random, 20);
  const std::vector<TokenId> masked = {0, 3, 4, 5, 6, 7, 8, 9, 19};
  for (const TokenId id : reachable(logits, plain(5), masked)) {
    EXPECT_EQ(std::count(masked.begin(), masked.end(), id), 0);
  }
}

TEST(Sampler, bad_parameters_are_refused) {
  EXPECT_TRUE(validate(SamplingParams{}).ok());
  const auto refused = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = validate(params);
    return status.code() == StatusCode::kInvalidArgument && !status.message().empty();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, nan, infinity, 101.0f}) {
    EXPECT_TRUE(refused([&](SamplingParams& p) { p.temperature = bad; })) << bad;
  }
  for (const float bad : {0.0f, -1.0f, 1.1f, nan}) {
    EXPECT_TRUE(refused([&](SamplingParams& p) { p.top_p = bad; })) << bad;
  }
  for (const float bad : {-0.1f, 1.1f, nan}) {
    EXPECT_TRUE(refused([&](SamplingParams& p) { p.min_p = bad; })) << bad;
  }
  for (const float bad : {0.0f, -1.0f, nan, infinity}) {
    EXPECT_TRUE(refused([&](SamplingParams& p) { p.repetition_penalty = bad; })) << bad;
  }
  EXPECT_TRUE(refused([](SamplingParams& p) { p.top_k = -1; }));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.penalty_window = -1; }));
  EXPECT_TRUE(refused([&](SamplingParams& p) { p.frequency_penalty = nan; }));
  EXPECT_TRUE(refused([&](SamplingParams& p) { p.presence_penalty = infinity; }));
}

TEST(Sampler, forbids_exactly_the_others) {
  std::mt19937_64 random(5);
  for (const std::size_t n : {1u, 63u, 64u, 65u, 200u, 512u, 1000u}) {
    for (int density = 0; density <= 8; ++density) {
      std::vector<std::uint64_t> allowed((n + 63) / 64);
      std::vector<float> logits(n);
      for (std::size_t id = 0; id < n; ++id) {
        logits[id] = static_cast<float>(id) - 7;
        if (random() % 8 < static_cast<unsigned>(density)) {
          allowed[id / 64] |= std::uint64_t{1} << (id % 64);
        }
      }
      const std::vector<float> before = logits;
      engine::forbid_others(logits, allowed);
      for (std::size_t id = 0; id < n; ++id) {
        const bool is_allowed = (allowed[id / 64] >> (id % 64) & 1) != 0;
        ASSERT_EQ(logits[id], is_allowed ? before[id] : -std::numeric_limits<float>::infinity());
      }
    }
  }
}

TEST(Sampler, chooses_among_the_allowed_only) {
  const std::vector<float> logits = {5, 4, 3, 2, 1};
  const std::vector<std::uint64_t> allowed = {0b11010};
  for (int position = 0; position < 200; ++position) {
    const TokenId id =
        engine::sample(logits, {}, std::vector<TokenId>{1}, plain(1), position, allowed);
    EXPECT_TRUE(id == 3 || id == 4) << id;
  }
  EXPECT_EQ(engine::sample(logits, {}, {}, plain(0), 0, allowed), 1);
}

}  // namespace
}  // namespace cairn::engine
