// Made-up weights and sequences, and the report that is measured with them. How fast anything was
// is not judged here.
#include "cairn/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "engine/loaded_model.h"
#include "engine/released_shape.h"
#include "engine/synthetic_sequence.h"
#include "engine/weights_loader.h"

namespace cairn::engine {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string tiny_config() {
  return text_of(CAIRN_SOURCE_DIR "/examples/models/tiny-a/config.json");
}

// The tensors that text needs, as a set of lines.
std::set<std::string> tensors_of(const std::string& json) {
  std::set<std::string> lines;
  for (const ExpectedTensor& tensor : expected_tensors(*parse_model_config(json, nullptr))) {
    if (tensor.required_for_text) lines.insert(tensor.name + describe(tensor.dtype, tensor.shape));
  }
  return lines;
}

TEST(ReleasedShape, is_that_of_the_released_configuration) {
  const std::string released = text_of(CAIRN_SOURCE_DIR "/tests/golden/released/config.json");
  const std::string ours(released_config_json());
  EXPECT_EQ(tensors_of(ours), tensors_of(released));
  const ModelConfig a = *parse_model_config(ours, nullptr);
  const ModelConfig b = *parse_model_config(released, nullptr);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.window, b.window);
  EXPECT_EQ(a.n_active_experts, b.n_active_experts);
  EXPECT_EQ(a.index_top_k, b.index_top_k);
  EXPECT_EQ(a.candidate_top_blocks, b.candidate_top_blocks);
  ASSERT_EQ(a.plan.size(), b.plan.size());
  for (std::size_t i = 0; i < a.plan.size(); ++i) {
    EXPECT_EQ(a.plan[i].mode, b.plan[i].mode) << i;
    EXPECT_EQ(a.plan[i].kv_source, b.plan[i].kv_source) << i;
    EXPECT_EQ(a.plan[i].index_source, b.plan[i].index_source) << i;
  }
}

TEST(SyntheticWeights, codes_are_numbers_and_tensors_lie_apart_while_the_pool_lasts) {
  const ModelConfig config = *parse_model_config(tiny_config(), nullptr);
  const auto made = SyntheticWeights::create(config, {.seed = 3, .max_bytes = 64 << 20});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::map<const std::uint8_t*, std::int64_t> taken;  // begin -> bytes
  for (const LayerWeights& layer : made->weights().layers) {
    const Fp8View& w = layer.attention.wq_b;
    for (std::int64_t i = 0; i < w.rows * w.cols; ++i) ASSERT_NE(w.codes[i] & 0x7F, 0x7F);
    for (const ExpertWeights& expert : layer.moe.experts) {
      for (const Fp4View& view : {expert.w1, expert.w3, expert.w2}) {
        EXPECT_TRUE(taken.emplace(view.codes, view.rows * view.cols / 2).second);
      }
    }
  }
  const std::uint8_t* end = nullptr;
  for (const auto& [begin, n] : taken) {
    EXPECT_GE(begin, end);
    end = begin + n;
  }
}

TEST(SyntheticWeights, a_full_pool_starts_again_and_too_little_memory_is_refused) {
  const ModelConfig config = *parse_model_config(tiny_config(), nullptr);
  std::int64_t max_bytes = 64 << 20;
  bool is_shared = false;
  for (; !is_shared && max_bytes > 1024; max_bytes = max_bytes * 9 / 10) {
    const auto some = SyntheticWeights::create(config, {.seed = 3, .max_bytes = max_bytes});
    ASSERT_TRUE(some.ok()) << some.status().to_string();
    EXPECT_LE(some->allocated_bytes(), max_bytes);
    std::set<const std::uint8_t*> places;
    std::size_t n = 0;
    for (const LayerWeights& layer : some->weights().layers) {
      for (const ExpertWeights& expert : layer.moe.experts) places.insert(expert.w1.codes), ++n;
    }
    is_shared = places.size() < n;
  }
  EXPECT_TRUE(is_shared);
  EXPECT_EQ(SyntheticWeights::create(config, {.seed = 3, .max_bytes = 4096}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(SyntheticSequence, of_any_length_decodes_to_numbers_that_its_seed_decides) {
  RuntimeOptions runtime_options;
  runtime_options.compute_threads = 2;
  const Runtime runtime = *Runtime::create(runtime_options);
  const ModelConfig config = *parse_model_config(tiny_config(), nullptr);
  const auto model = LoadedModel::synthetic(runtime.state(), config, {}, {.max_bytes = 64 << 20});
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const std::vector<KvPagePtr> pages = synthetic_pages(**model, 6, 1);
  std::vector<float> first;
  for (const int round : {0, 1}) {
    auto sequence = synthetic_sequence(*model, pages, 7);
    ASSERT_TRUE(sequence.ok()) << sequence.status().to_string();
    EXPECT_EQ((*sequence)->position(), 6 * kBlockTokens);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*sequence)->decode(20 + i).ok());
    const auto logits = (*sequence)->logits();
    EXPECT_TRUE(std::ranges::all_of(logits, [](float v) { return std::isfinite(v); }));
    EXPECT_GT(*std::ranges::max_element(logits), *std::ranges::min_element(logits));
    if (round == 0) first.assign(logits.begin(), logits.end());
    EXPECT_TRUE(std::ranges::equal(first, logits));
  }
}

TEST(Bench, reports_every_step_with_what_it_reads) {
  BenchOptions options;
  options.runtime.compute_threads = 2;
  options.config_json = tiny_config();
  options.weight_bytes = 64 << 20;
  options.contexts = {512, 1024, 1 << 30};  // the last is beyond the model
  options.n_sessions = 3;
  options.prefill_rows = 8;
  options.repetitions = 1;
  const auto report = run_bench(options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GT(report->limits.size(), 1u);
  std::map<std::string, int> n_of;
  double index_bytes[2] = {}, other_bytes[2] = {};
  for (const BenchMeasure& measure : report->measures) {
    ++n_of[measure.name];
    EXPECT_GT(measure.ms, 0) << measure.name;
    EXPECT_GT(measure.bytes, 0) << measure.name;
    EXPECT_GT(measure.n_kept + measure.n_dropped, 0) << measure.name;
    if (measure.name != "decode") continue;
    const int at = measure.context == 512 ? 0 : 1;
    for (const BenchPart& part : measure.parts) {
      (part.name == "indexer" ? index_bytes : other_bytes)[at] += part.bytes;
    }
  }
  EXPECT_EQ(n_of["product"], 4);
  EXPECT_EQ(n_of["decode"], 2);
  EXPECT_EQ(n_of["decode together"], 1);
  EXPECT_EQ(n_of["draft"], 1);
  EXPECT_EQ(n_of["verify"], 1);
  EXPECT_GT(n_of["prefill layer"], 3);
  // Only the index is read for the whole context; experts and Engram rows differ by token.
  EXPECT_GT(index_bytes[1], 1.1 * index_bytes[0]);
  EXPECT_NEAR(other_bytes[1], other_bytes[0], 0.1 * other_bytes[0]);
}

TEST(Bench, options_that_cannot_be_are_refused) {
  BenchOptions options;
  options.repetitions = 0;
  EXPECT_EQ(run_bench(options).status().code(), StatusCode::kInvalidArgument);
  options.repetitions = 1;
  options.config_json = "{}";
  EXPECT_FALSE(run_bench(options).ok());
}

}  // namespace
}  // namespace cairn::engine
