// A plan is checked by running it on facts instead of numbers: which rows of which layer hold what
// a full pass from position 0 would have computed.
#include "engine/pass_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/kv_cache.h"
#include "tests/support/temporary_folder.h"

namespace cairn::engine {
namespace {

ModelConfig released() {
  auto config =
      parse_model_config(test::read_file(CAIRN_TEST_DATA "/released/config.json"), nullptr);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return *config;
}

ModelConfig shape(int n_encoder_layers, int n_layers, int window) {
  ModelConfig config;
  config.n_encoder_layers = n_encoder_layers;
  config.n_layers = n_layers;
  config.window = window;
  return config;
}

// The ring of one layer: right[p] for the rows begin .. end-1 it holds.
struct Ring {
  std::int64_t begin = 0, end = 0;
  std::vector<bool> right;
};

struct Outcome {
  bool global = true;        // every row of global KV that was appended
  bool windows = true;       // the next step finds all it needs in every ring
  std::vector<bool> logits;  // by position; false below the rows that have any
};

// Follows layer.cc and attention.cc.
Outcome run(const ModelConfig& config, const PlanRequest& request, const PassPlan& plan,
            std::vector<Ring> rings) {
  const auto end = static_cast<std::size_t>(plan.end);
  Outcome outcome;
  std::vector<bool> input(end, false);  // the layer's input row is there and right
  std::fill(input.begin() + plan.begin, input.end(), true);
  for (int l = 0; l < config.n_layers; ++l) {
    const LayerRows& rows = plan.layers[static_cast<std::size_t>(l)];
    Ring& ring = rings[static_cast<std::size_t>(l)];
    ring.right.resize(end, false);
    if (l <= config.n_encoder_layers) {  // may own global KV
      for (std::int64_t p = request.live.global_end; p < plan.end; ++p) {
        outcome.global = outcome.global && input[static_cast<std::size_t>(p)] &&
                         std::max(plan.begin, rows.global_from) <= p;
      }
    }
    const std::int64_t from = std::max(plan.begin, rows.window_from);
    if (rows.reset_window || ring.end != from) ring.begin = ring.end = from;
    for (std::int64_t p = from; p < plan.end; ++p) {
      ring.right[static_cast<std::size_t>(p)] = input[static_cast<std::size_t>(p)];
    }
    std::vector<bool> output(end, false);
    for (std::int64_t p = std::max(plan.begin, rows.output_from); p < plan.end; ++p) {
      bool right = input[static_cast<std::size_t>(p)];
      for (std::int64_t seen = std::max<std::int64_t>(0, p - config.window + 1); seen <= p;
           ++seen) {
        right = right && seen >= ring.begin && ring.right[static_cast<std::size_t>(seen)];
      }
      output[static_cast<std::size_t>(p)] = right;
    }
    ring.end = plan.end;
    for (std::int64_t p = std::max<std::int64_t>(0, plan.end - config.window + 1); p < plan.end;
         ++p) {
      outcome.windows =
          outcome.windows && p >= ring.begin && ring.right[static_cast<std::size_t>(p)];
    }
    input = output;
  }
  outcome.logits = input;
  return outcome;
}

// Rings before the pass: right where live; otherwise rows of some other past, or nothing.
std::vector<Ring> rings_before(const ModelConfig& config, const LiveState& live, std::int64_t end,
                               std::mt19937& random) {
  std::vector<Ring> rings;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n));
  };
  for (int l = 0; l < config.n_layers; ++l) {
    const bool right = config.in_decoder(l) ? live.decoder_windows : live.encoder_windows;
    Ring ring;
    ring.end = right ? live.global_end : below(3) == 0 ? 0 : below(end + 1);
    ring.begin = std::max<std::int64_t>(0, ring.end - config.window);
    ring.right.assign(static_cast<std::size_t>(end), false);
    if (right) {
      std::fill(ring.right.begin() + ring.begin, ring.right.begin() + ring.end, true);
    }
    rings.push_back(ring);
  }
  return rings;
}

TEST(PassPlan, what_is_called_exact_has_all_it_depends_on) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int exact_plans = 0, bounded_plans = 0;
  for (int trial = 0; trial < 30000; ++trial) {
    const int n_layers = 1 + below(6), n_encoder = 1 + below(n_layers), window = 1 + below(6);
    const ModelConfig config = shape(n_encoder, n_layers, window);
    PlanRequest request;
    request.live.global_end = below(2) ? below(10) : below(60);
    request.end = request.live.global_end + (below(2) ? below(10) : below(60));
    const bool recompute = request.end == request.live.global_end;
    if (request.end == 0) request.end = 1;
    request.live.encoder_windows = request.live.global_end == 0 || (!recompute && below(2));
    request.live.decoder_windows =
        request.live.global_end == 0 || (!recompute && request.live.encoder_windows && below(2));
    request.decoder = static_cast<DecoderPass>(below(4));
    request.bounded_restore = below(3) == 0;
    request.logits_from = below(4) ? -1 : below(static_cast<int>(request.end));
    const PassPlan plan = make_plan(config, request);

    SCOPED_TRACE(testing::Message()
                 << n_encoder << "+" << n_layers - n_encoder << " layers, window " << window
                 << ", global " << request.live.global_end << ", windows "
                 << request.live.encoder_windows << request.live.decoder_windows << ", end "
                 << request.end << ", pass " << static_cast<int>(request.decoder) << ", bounded "
                 << request.bounded_restore);
    ASSERT_EQ(plan.end, request.end);
    ASSERT_GE(plan.begin, 0);
    ASSERT_LE(plan.begin, request.live.global_end);
    ASSERT_LT(plan.begin, plan.end);
    ASSERT_GE(plan.logits_from, plan.layers.back().output_from);
    ASSERT_LT(plan.logits_from, plan.end);
    const Outcome outcome =
        run(config, request, plan, rings_before(config, request.live, request.end, random));
    const bool full_reach = request.decoder == DecoderPass::kHalo ||
                            request.decoder == DecoderPass::kFull || n_encoder == n_layers;
    ASSERT_TRUE(plan.exact || !full_reach || request.bounded_restore);
    // Approximations of the decoder half never enter the global KV.
    ASSERT_TRUE(outcome.global || request.bounded_restore);
    if (!plan.exact) {
      ++bounded_plans;
      continue;
    }
    ++exact_plans;
    ASSERT_TRUE(outcome.global);
    ASSERT_TRUE(outcome.windows);
    for (std::int64_t p = plan.logits_from; p < plan.end; ++p) {
      ASSERT_TRUE(outcome.logits[static_cast<std::size_t>(p)]) << "logits of " << p;
    }
  }
  EXPECT_GT(exact_plans, 1000);
  EXPECT_GT(bounded_plans, 500);
}

TEST(PassPlan, full_pass_of_a_fresh_prompt_has_every_row_of_logits) {
  const ModelConfig config = shape(3, 6, 4);
  PlanRequest request;
  request.live = {0, true, true};
  request.end = 50;
  request.decoder = DecoderPass::kFull;
  request.logits_from = 0;
  const PassPlan plan = make_plan(config, request);
  EXPECT_EQ(plan.logits_from, 0);
  std::mt19937 random(1);
  const Outcome outcome =
      run(config, request, plan, rings_before(config, request.live, 50, random));
  EXPECT_EQ(outcome.logits, std::vector<bool>(50, true));
}

// Spec section 12.3.
TEST(PassPlan, halo_of_the_released_model) {
  const ModelConfig config = released();
  ASSERT_EQ(config.n_layers, 40);
  ASSERT_EQ(config.n_encoder_layers, 20);
  EXPECT_EQ(halo_rows(config, 21), 2414);
  EXPECT_EQ(halo_rows(config, 39), 128);
  PlanRequest request;
  request.live = {0, true, true};
  request.end = 10000;
  const PassPlan plan = make_plan(config, request);
  EXPECT_TRUE(plan.exact);
  EXPECT_EQ(plan.begin, 0);
  for (std::size_t l = 0; l < 20; ++l) EXPECT_EQ(plan.layers[l].output_from, 0);
  EXPECT_EQ(plan.end - plan.layers[20].window_from, 2541);
  EXPECT_EQ(plan.layers[20].global_from, 0);
  EXPECT_EQ(plan.end - plan.layers[20].output_from, 2414);
  EXPECT_EQ(plan.end - plan.layers[21].window_from, 2414);
  EXPECT_EQ(plan.end - plan.layers[39].window_from, 128);
  EXPECT_EQ(plan.end - plan.layers[39].output_from, 1);
}

// Spec section 12.1: 2,541 rows at layer 0, shrinking by 127 a layer, for one exact row.
TEST(PassPlan, deep_replay_of_the_released_model) {
  const ModelConfig config = released();
  PlanRequest request;
  request.live = {20000, false, false};
  request.end = 20001;
  const PassPlan plan = make_plan(config, request);
  EXPECT_TRUE(plan.exact);
  const std::int64_t exact_from = plan.layers[19].output_from;
  EXPECT_EQ(exact_from, request.end - 2541);  // where the decoder half's halo starts
  EXPECT_EQ(exact_from + 1 - plan.layers[0].window_from, 2541);
  EXPECT_EQ(plan.begin, plan.layers[0].window_from);
  for (std::size_t l = 1; l < 20; ++l) {
    EXPECT_EQ(plan.layers[l].window_from - plan.layers[l - 1].window_from, 127);
  }
}

TEST(PassPlan, bounded_restore_runs_one_window_more) {
  const ModelConfig config = released();
  PlanRequest request;
  request.live = {20000, false, false};
  request.end = 20100;
  request.bounded_restore = true;
  const PassPlan plan = make_plan(config, request);
  EXPECT_FALSE(plan.exact);
  EXPECT_EQ(plan.begin, 20000 - 128);
  EXPECT_EQ(plan.layers[0].global_from, 20000);  // stored rows are never rewritten
  EXPECT_EQ(plan.layers[39].window_from, 20100 - 128);
}

TEST(PassPlan, a_decode_step_runs_one_row) {
  const ModelConfig config = released();
  PlanRequest request;
  request.live = {20000, true, true};
  request.end = 20001;
  const PassPlan plan = make_plan(config, request);
  EXPECT_TRUE(plan.exact);
  EXPECT_EQ(plan.begin, 20000);
  for (const LayerRows& rows : plan.layers) {
    EXPECT_EQ(rows.window_from, 20000);
    EXPECT_EQ(rows.output_from, 20000);
    EXPECT_FALSE(rows.reset_window);
  }
}

}  // namespace
}  // namespace cairn::engine
