// Checkpoints of other shapes than the golden ones: other plans, ratios, stream and head counts,
// block and window sizes. No reference numbers exist for them, so the engine is held against
// itself: every way to compute a position must give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cairn/engine.h"
#include "engine/decode_batch.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"
#include "tests/support/config_text.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace cairn::engine {
namespace {

namespace json = boost::json;
using test::ConfigText;

const std::string kTinyA = std::string(CAIRN_SOURCE_DIR) + "/examples/models/tiny-a";

struct Shape {
  std::string name;
  std::vector<std::pair<std::string, json::value>> changes;  // keys of text_config; null erases
};

std::string config_of(const Shape& shape) {
  ConfigText text(kTinyA + "/config.json");
  for (const auto& [key, value] : shape.changes) {
    const std::string where = "/text_config/" + key;
    if (value.is_null()) {
      text.erase(where);
    } else {
      text.set(where, value);
    }
  }
  return text.text();
}

// The small common part: fewer layers than tiny-a, no draft stages.
Shape shape(std::string name, int n_layers, json::array ratios, json::array kv_sources,
            json::array index_sources, std::vector<std::pair<std::string, json::value>> more = {}) {
  Shape result{std::move(name),
               {{"num_hidden_layers", n_layers},
                {"compress_ratios", std::move(ratios)},
                {"kv_source_layer_ids", std::move(kv_sources)},
                {"index_source_layer_ids", std::move(index_sources)},
                {"num_nextn_predict_layers", 0},
                {"candidate_source_layer_id", nullptr},
                {"engram_layer_ids", json::array()},
                {"engram_num_embeddings", json::array()}}};
  for (auto& change : more) result.changes.push_back(std::move(change));
  return result;
}

std::vector<Shape> shapes() {
  return {
      shape("window layers only", 3, {0, 0, 0}, {}, {}),
      shape("one source, no encoder pair", 2, {0, 1}, {1}, {1}, {{"sliding_window", 1}}),
      shape("ratio 4, then 1", 5, {0, 4, 4, 1, 1}, {1, 3}, {1, 3},
            {{"sliding_window", 7}, {"index_topk", 3}, {"hc_mult", 2}}),
      shape("last source has ratio 2", 4, {0, 2, 2, 2}, {1, 3}, {1, 2, 3},
            {{"index_topk", 5}, {"sliding_window", 5}}),
      shape("a window layer above the last source", 6, {0, 2, 2, 1, 1, 0}, {1, 3}, {1, 3, 4},
            {{"candidate_source_layer_id", 3},
             {"candidate_topk_blocks", 2},
             {"candidate_block_size", 2},
             {"index_topk", 4},
             {"sliding_window", 8}}),
      shape("ratio 128 and a candidate source that reindexes", 5, {128, 1, 1, 1, 1}, {0, 1},
            {0, 1, 2, 4},
            {{"candidate_source_layer_id", 2},
             {"candidate_topk_blocks", 3},
             {"candidate_block_size", 3},
             {"index_topk", 4},
             {"sliding_window", 3}}),
      shape("engram in both halves, two-grams only", 4, {0, 2, 1, 1}, {1, 2}, {1, 2},
            {{"engram_layer_ids", {0, 3}},
             {"engram_max_ngram_size", 2},
             {"engram_n_heads", 1},
             {"engram_num_embeddings", {97, 101}},
             {"sliding_window", 4},
             {"index_topk", 8}}),
      shape("five streams, one head, wide rope", 4, {0, 2, 1, 1}, {1, 2}, {1, 2, 3},
            {{"hc_mult", 5},
             {"num_attention_heads", 1},
             {"o_groups", 1},
             {"qk_rope_head_dim", 64},
             {"index_n_heads", 3},
             {"hidden_size", 96},
             {"n_routed_experts", 5},
             {"num_experts_per_tok", 5},
             {"swiglu_limit", 0.5},
             {"hc_sinkhorn_iters", 1},
             {"rms_norm_eps", 1e-6},
             {"sliding_window", 6}}),
  };
}

class OtherShapes : public testing::TestWithParam<Shape> {
 protected:
  std::shared_ptr<const LoadedModel> open(Numerics numerics, int chunk) {
    ModelOptions options;
    options.numerics = numerics;
    options.prefill_chunk = chunk;
    auto model = Model::open(*runtime_, folder_.path().string(), options);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return model.ok() ? model->state() : nullptr;
  }

  void SetUp() override {
    const Status written =
        test::write_random_checkpoint(folder_.path().string(), config_of(GetParam()),
                                      test::read_file(kTinyA + "/tokenizer.json"), /*seed=*/7);
    ASSERT_TRUE(written.ok()) << written.to_string();
    std::mt19937 random(3);
    for (int i = 0; i < 333; ++i) tokens_.push_back(static_cast<TokenId>(3 + random() % 500));
  }

  std::vector<float> last_logits(const Sequence& s) {
    return {s.logits().begin(), s.logits().end()};
  }
  std::span<const TokenId> first(std::size_t n) const { return std::span(tokens_).first(n); }
  std::span<const TokenId> from(std::size_t n) const { return std::span(tokens_).subspan(n); }

  std::unique_ptr<Runtime> runtime_ = std::make_unique<Runtime>(*Runtime::create());
  test::TemporaryFolder folder_;
  std::vector<TokenId> tokens_;
};

TEST_P(OtherShapes, every_way_to_a_position_gives_the_same_bits) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kF32}) {
    const auto model = open(numerics, 64), in_sevens = open(numerics, 7);
    ASSERT_TRUE(model && in_sevens);
    Sequence full(model);
    ASSERT_TRUE(full.prefill(tokens_, {.decoder = DecoderPass::kFull}).ok());
    const std::vector<float> expected = last_logits(full);
    EXPECT_NE(expected.front(), expected.back());

    Sequence halo(model);
    ASSERT_TRUE(halo.prefill(tokens_).ok());
    EXPECT_EQ(last_logits(halo), expected) << "halo";
    EXPECT_TRUE(halo.exact());

    Sequence chunked(in_sevens);
    ASSERT_TRUE(chunked.prefill(first(130)).ok());
    for (const TokenId token : from(130).first(40)) ASSERT_TRUE(chunked.decode(token).ok());
    ASSERT_TRUE(chunked.prefill(from(170)).ok());
    EXPECT_EQ(last_logits(chunked), expected) << "chunks, decode steps, chunks";

    for (const std::size_t cut : {1u, 2u, 127u, 128u, 255u, 332u}) {
      Sequence replayed(model);
      ASSERT_TRUE(replayed.prefill(first(cut)).ok());
      replayed.forget_windows();
      ASSERT_TRUE(replayed.prefill(from(cut)).ok());
      EXPECT_EQ(last_logits(replayed), expected) << "deep replay at " << cut;
      EXPECT_TRUE(replayed.exact());
    }
  }
}

TEST_P(OtherShapes, state_survives_export_and_import) {
  const auto model = open(Numerics::kReference, 64);
  ASSERT_TRUE(model);
  Sequence full(model);
  ASSERT_TRUE(full.prefill(tokens_).ok());
  for (const std::size_t cut : {1u, 5u, 128u, 200u, 257u}) {
    Sequence source(model);
    ASSERT_TRUE(source.prefill(first(cut)).ok());
    Sequence restored(model);
    for (std::int64_t block = 0; block < source.n_blocks(); ++block) {
      const auto tokens = from(static_cast<std::size_t>(block * kBlockTokens)).first(128);
      Result<KvPagePtr> page = restored.make_page(source.page(block)->bytes);
      ASSERT_TRUE(page.ok());
      ASSERT_TRUE(restored.import_page(tokens, *page, true).ok());
    }
    const std::size_t whole = cut / 128 * 128;
    ASSERT_TRUE(restored.import_tail(from(whole).first(cut - whole), source.export_tail()).ok());
    EXPECT_EQ(last_logits(restored), last_logits(source));
    ASSERT_TRUE(restored.prefill(from(cut)).ok());
    EXPECT_EQ(last_logits(restored), last_logits(full)) << "tail at " << cut;
  }
}

TEST_P(OtherShapes, a_bounded_replay_answers_and_says_that_it_is_not_exact) {
  const auto model = open(Numerics::kReference, 64);
  ASSERT_TRUE(model);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.prefill(first(256)).ok());
  sequence.forget_windows();
  ASSERT_TRUE(sequence.prefill(from(256), {.bounded_restore = true}).ok());
  EXPECT_TRUE(sequence.ready());
  EXPECT_FALSE(sequence.exact());
}

// A sequence that decodes the tokens after its prefix, and its logits after each when it is alone.
struct Decoded {
  std::unique_ptr<Sequence> sequence;
  std::size_t next = 0;
  std::vector<std::vector<float>> alone;  // by tokens decoded
  std::size_t n_decoded = 0;
};

TEST_P(OtherShapes, any_mix_of_sequences_decodes_as_each_alone) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  constexpr std::size_t kSteps = 24;
  const auto model = open(Numerics::kReference, 64);
  ASSERT_TRUE(model);
  std::vector<Decoded> all;
  for (const std::size_t prefix : {1u, 2u, 60u, 125u, 128u, 200u}) {
    Decoded& one = all.emplace_back();
    one.next = prefix;
    Sequence alone(model);
    one.sequence = std::make_unique<Sequence>(model);
    ASSERT_TRUE(alone.prefill(first(prefix)).ok() && one.sequence->prefill(first(prefix)).ok());
    for (std::size_t i = 0; i < kSteps; ++i) {
      ASSERT_TRUE(alone.decode(tokens_[prefix + i]).ok());
      one.alone.push_back(last_logits(alone));
    }
  }
  std::size_t n_rows = 0, n_passes = 0, n_stopped = 0, n_refused = 0, n_verified = 0;
  for (;;) {
    std::vector<DecodeRow> rows;
    std::vector<Decoded*> members;
    std::vector<std::vector<TokenId>> drafts;
    drafts.reserve(all.size());
    const bool all_stop = random() % 5 == 0;
    for (Decoded& one : all) {
      if (one.n_decoded == kSteps || random() % 3 == 0) continue;
      const bool is_bad = random() % 8 == 0, stops = all_stop || random() % 4 == 0;
      if (random() % 16 == 0) one.sequence->forget_windows();  // does not fit into the pass
      // Right until a random place.
      drafts.emplace_back(&tokens_[one.next + 1], &tokens_[one.next + 1 + random() % 6]);
      if (const std::size_t wrong = random() % 6; wrong < drafts.back().size()) {
        drafts.back()[wrong] = 3 + (drafts.back()[wrong] + 1) % 500;
      }
      rows.push_back({.sequence = one.sequence.get(),
                      .token = is_bad ? TokenId{1 << 30} : tokens_[one.next],
                      .stop_requested = [stops] { return stops; },
                      .status = Status(),
                      .drafts = drafts.back()});
      members.push_back(&one);
    }
    decode_together(rows);
    ++n_passes;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Decoded& one = *members[i];
      const Status& status = rows[i].status;
      if (rows[i].token != tokens_[one.next]) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        ++n_refused;
        continue;
      }
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
        EXPECT_TRUE(rows[i].stop_requested());
        ++n_stopped;
        continue;
      }
      std::size_t n = 1;
      if (const std::int64_t n_waiting = one.sequence->n_verified(); n_waiting > 0) {
        ASSERT_EQ(n_waiting, static_cast<std::int64_t>(rows[i].drafts.size()) + 1);
        while (n <= rows[i].drafts.size() && one.n_decoded + n < kSteps &&
               rows[i].drafts[n - 1] == tokens_[one.next + n]) {
          ++n;
        }
        one.sequence->accept(static_cast<std::int64_t>(n));
        n_verified += n;
      }
      one.n_decoded += n;
      one.next += n;
      n_rows += n;
      ASSERT_EQ(last_logits(*one.sequence), one.alone[one.n_decoded - 1]);
    }
    if (std::ranges::all_of(all, [](const Decoded& d) { return d.n_decoded == kSteps; })) break;
  }
  EXPECT_EQ(n_rows, all.size() * kSteps);
  EXPECT_GT(n_stopped, 0u);
  EXPECT_GT(n_refused, 0u);
  EXPECT_GT(n_rows, n_passes);
  EXPECT_EQ(n_verified > 0, model->config().window > 1);
  std::printf("seed %u: %zu rows in %zu passes, %zu stopped, %zu refused\n", kSeed, n_rows,
              n_passes, n_stopped, n_refused);
}

INSTANTIATE_TEST_SUITE_P(All, OtherShapes, testing::ValuesIn(shapes()),
                         [](const testing::TestParamInfo<Shape>& info) {
                           std::string name;
                           for (const char c : info.param.name) {
                             name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace cairn::engine
