// Drafts depend on the position alone: not on how the sequence got there. Golden drafts are
// compared by the golden runner.
#include "engine/draft.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/sequence.h"
#include "tests/support/temporary_folder.h"

namespace cairn::engine {
namespace {

const std::string kTinyA = CAIRN_SOURCE_DIR "/examples/models/tiny-a";

std::shared_ptr<LoadedModel> open_model(const std::string& folder, int chunk, int threads = 2) {
  RuntimeOptions runtime_options;
  runtime_options.compute_threads = threads;
  auto runtime = Runtime::create(runtime_options);
  EXPECT_TRUE(runtime.ok());
  ModelOptions options;
  options.prefill_chunk = chunk;
  auto opened = Model::open(*runtime, folder, options);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return opened->state();
}

std::vector<TokenId> some_tokens(std::int64_t n) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>(3 + i * 37 % 500);
  return tokens;
}

struct Draft {
  std::vector<TokenId> tokens;
  std::vector<float> confidence, logits;
  bool operator==(const Draft&) const = default;
};

Draft draft_of(const Sequence& sequence, TokenId anchor) {
  DraftProposal proposal;
  const Status status = sequence.propose(anchor, proposal);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return {proposal.tokens, proposal.confidence, proposal.logits};
}

TEST(Draft, does_not_depend_on_how_the_position_was_reached) {
  const auto model = open_model(kTinyA, 64), in_chunks = open_model(kTinyA, 7, 1);
  EXPECT_EQ(model->config().window, 16);
  for (const std::int64_t n : {1, 2, 3, 15, 16, 17, 127, 128, 129, 200}) {
    const std::vector<TokenId> tokens = some_tokens(n);
    Sequence prefilled(model), chunked(in_chunks), decoded(model), full(model);
    ASSERT_TRUE(prefilled.prefill(tokens).ok());
    ASSERT_TRUE(chunked.prefill(tokens).ok());
    ASSERT_TRUE(full.prefill(tokens, {.decoder = DecoderPass::kFull}).ok());
    for (const TokenId token : tokens) ASSERT_TRUE(decoded.decode(token).ok());
    const Draft draft = draft_of(prefilled, 42);
    EXPECT_EQ(draft.tokens.size(), 5u);
    EXPECT_EQ(draft_of(chunked, 42), draft) << n;
    EXPECT_EQ(draft_of(decoded, 42), draft) << n;
    EXPECT_EQ(draft_of(full, 42), draft) << n;
    EXPECT_EQ(draft_of(prefilled, 42), draft) << "a proposal changes nothing";
    EXPECT_NE(draft_of(prefilled, 43), draft);
  }
}

TEST(Draft, changes_nothing_that_a_sequence_holds) {
  const auto model = open_model(kTinyA, 64);
  const std::vector<TokenId> tokens = some_tokens(150);
  Sequence with(model), without(model);
  ASSERT_TRUE(with.prefill(tokens).ok());
  ASSERT_TRUE(without.prefill(tokens).ok());
  for (int i = 0; i < 20; ++i) {
    draft_of(with, 5 + i);
    ASSERT_TRUE(with.decode(5 + i).ok());
    ASSERT_TRUE(without.decode(5 + i).ok());
  }
  EXPECT_EQ(with.export_tail(), without.export_tail());
}

TEST(Draft, comes_back_with_a_tail) {
  const auto model = open_model(kTinyA, 64);
  const std::vector<TokenId> tokens = some_tokens(150);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.prefill(tokens).ok());
  const Draft draft = draft_of(sequence, 9);
  const std::vector<std::byte> tail = sequence.export_tail();
  const auto restored = [&](std::span<const std::byte> bytes) {
    Sequence other(model);
    EXPECT_TRUE(other.import_page(std::span(tokens).first(128), sequence.page(0), true).ok());
    EXPECT_TRUE(other.import_tail(std::span(tokens).subspan(128), bytes).ok());
    return other;
  };
  EXPECT_EQ(draft_of(restored(tail), 9), draft);

  // A tail of an older version ends before the rings; what it lacks costs the drafts only.
  const ModelConfig& config = model->config();
  const std::size_t rings = static_cast<std::size_t>(
      config.n_draft_stages * (8 + config.window * sequence.cache().window_row_bytes()));
  const std::size_t logits = static_cast<std::size_t>(config.vocab_size) * sizeof(float);
  std::vector<std::byte> old_tail = tail;
  old_tail.erase(old_tail.end() - static_cast<std::ptrdiff_t>(rings + logits),
                 old_tail.end() - static_cast<std::ptrdiff_t>(logits));
  Sequence old = restored(old_tail);
  EXPECT_NE(draft_of(old, 9), draft);
  EXPECT_EQ(draft_of(restored(old.export_tail()), 9), draft_of(old, 9));
  for (int i = 0; i < config.window; ++i) {  // and no longer than a window
    ASSERT_TRUE(old.decode(20 + i).ok());
    ASSERT_TRUE(sequence.decode(20 + i).ok());
  }
  EXPECT_EQ(draft_of(old, 9), draft_of(sequence, 9));
  EXPECT_EQ(old.export_tail(), sequence.export_tail());
}

TEST(Draft, windows_that_are_computed_again_bring_it_back) {
  const auto model = open_model(kTinyA, 64);
  const std::vector<TokenId> tokens = some_tokens(300);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.prefill(tokens).ok());
  const Draft draft = draft_of(sequence, 9);
  sequence.forget_windows();
  DraftProposal proposal;
  EXPECT_EQ(sequence.propose(9, proposal).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(sequence.prefill({}).ok());
  EXPECT_EQ(draft_of(sequence, 9), draft);
}

TEST(Draft, a_checkpoint_may_lack_the_stages) {
  const test::TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(kTinyA)) {
    std::filesystem::copy(entry.path(),
                          std::filesystem::path(folder / ".") / entry.path().filename());
  }
  // Under another name, as long, the tensor is not there.
  for (const char* name : {"model-00002-of-00002.safetensors", "model.safetensors.index.json"}) {
    std::string text = test::read_file(folder / name);
    const std::size_t at = text.find("mtp.0.main_norm");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 3, "xxx");
    test::write_file(folder / name, text);
  }
  const auto model = open_model(folder / ".", 64);
  EXPECT_FALSE(model->has_drafts());
  Sequence sequence(model), complete(open_model(kTinyA, 64));
  ASSERT_TRUE(sequence.prefill(some_tokens(40)).ok());
  ASSERT_TRUE(complete.prefill(some_tokens(40)).ok());
  EXPECT_TRUE(std::ranges::equal(sequence.logits(), complete.logits()));
  DraftProposal proposal;
  EXPECT_EQ(sequence.propose(9, proposal).code(), StatusCode::kUnsupported);
  EXPECT_EQ(complete.propose(-1, proposal).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::engine
