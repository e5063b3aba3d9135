// Changed blocks and tails under right checksums, as a file to import may hold them: they are
// refused or restored, and what was restored computes without touching what is not its own (run
// with sanitizers).
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "session/tail_payload.h"
#include "tests/fuzz/mutation.h"
#include "tests/session/store_samples.h"

namespace cairn::session {
namespace {

using engine::Sequence;
using test::Bytes;
using test::Mutation;
using test::n_inputs;

std::shared_ptr<const engine::LoadedModel> tiny_model() {
  static const auto model = [] {
    RuntimeOptions options;
    options.compute_threads = 1;
    return Model::open(*Runtime::create(options), CAIRN_SOURCE_DIR "/examples/models/tiny-a", {})
        ->state();
  }();
  return model;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A stored prefix: one block, and a tail in the middle of the next.
struct Stored {
  std::vector<TokenId> tokens;
  std::string block, tail;

  std::span<const TokenId> first_block() const { return std::span(tokens).first(kBlockTokens); }
  std::span<const TokenId> open_block() const { return std::span(tokens).subspan(kBlockTokens); }
};

Stored stored_prefix() {
  Stored stored;
  stored.tokens = test::random_tokens(1, kBlockTokens + 37);
  for (TokenId& token : stored.tokens) {
    token %= static_cast<TokenId>(tiny_model()->config().vocab_size);
  }
  Sequence sequence(tiny_model());
  EXPECT_TRUE(sequence.prefill(stored.tokens).ok());
  stored.block = text_of(sequence.page(0)->bytes);
  stored.tail = text_of(encode_tail({-1, stored.open_block(), sequence.export_tail()}));
  return stored;
}

// What a restore does with the bytes of a block and of a tail.
Status restore(const Stored& stored, Sequence& sequence) {
  CAIRN_RETURN_IF_ERROR(sequence.import_block(stored.first_block(), bytes_of(stored.block), true));
  const auto tail = decode_tail(bytes_of(stored.tail), stored.open_block());
  if (!tail) return corrupt("no tail of these tokens");
  return sequence.import_tail(tail->tokens, tail->state);
}

// Two sampled tokens more.
void go_on(Sequence& sequence, std::uint64_t seed) {
  const SamplingParams params = {.temperature = 1, .top_p = 0.9f, .seed = seed};
  for (int i = 0; i < 2; ++i) {
    const TokenId token =
        engine::sample(sequence.logits(), sequence.tokens(), {}, params, sequence.position());
    ASSERT_GE(token, 0);
    ASSERT_LT(token, tiny_model()->config().vocab_size);
    ASSERT_TRUE(sequence.decode(token).ok());
  }
}

TEST(FuzzRestoredState, a_changed_block_or_tail_is_refused_or_restored) {
  constexpr std::uint32_t kSeed = 8;
  Mutation mutation(kSeed);
  const Stored good = stored_prefix();
  Sequence unchanged(tiny_model());
  ASSERT_TRUE(restore(good, unchanged).ok());
  int n_restored = 0, n_refused = 0;
  for (int i = 0; i < n_inputs(300); ++i) {
    Stored changed = good;
    // Mostly of the right length: bytes of rows, scales and logits; sometimes of the header.
    const std::size_t n_header = 16 + sizeof(TokenId) * good.open_block().size();
    for (std::string* const bytes : {&changed.block, &changed.tail}) {
      const bool in_header = mutation.below(10) == 0;
      for (std::size_t n = mutation.below(200); n > 0; --n) {
        const std::size_t at = in_header ? mutation.below(n_header)
                                         : n_header + mutation.below(bytes->size() - n_header);
        (*bytes)[at] = mutation.random_bytes(1)[0];
      }
      if (mutation.below(8) == 0) *bytes = mutation.of({*bytes});
    }
    Sequence sequence(tiny_model());
    const Status status = restore(changed, sequence);
    if (!status.ok()) {
      ASSERT_EQ(status.code(), StatusCode::kCorrupt) << i << ": " << status.to_string();
      ++n_refused;
      continue;
    }
    ++n_restored;
    go_on(sequence, static_cast<std::uint64_t>(i));
  }
  std::cout << "seed " << kSeed << ": " << n_restored << " restored, " << n_refused << " refused\n";
  EXPECT_GT(n_restored, n_inputs(50));
  EXPECT_GT(n_refused, n_inputs(10));
}

TEST(FuzzRestoredState, rows_of_noise_are_computed_with) {
  constexpr std::uint32_t kSeed = 9;
  Mutation mutation(kSeed);
  const Stored good = stored_prefix();
  for (int i = 0; i < n_inputs(50); ++i) {
    Stored noise = good;
    noise.block = mutation.random_bytes(good.block.size());
    Sequence sequence(tiny_model());
    ASSERT_TRUE(restore(noise, sequence).ok());
    go_on(sequence, static_cast<std::uint64_t>(i));
  }
}

TEST(FuzzRestoredState, tokens_outside_the_vocabulary_are_refused) {
  const Stored good = stored_prefix();
  const auto vocab_size = static_cast<TokenId>(tiny_model()->config().vocab_size);
  for (const TokenId id : {-1, vocab_size, std::numeric_limits<TokenId>::max()}) {
    for (const std::size_t at : {std::size_t{5}, std::size_t{kBlockTokens} + 5}) {
      Stored changed = good;
      changed.tokens[at] = id;
      Sequence sequence(tiny_model());
      EXPECT_FALSE(restore(changed, sequence).ok());
      Sequence importing(tiny_model());
      const bool in_block = at < std::size_t{kBlockTokens};
      const Status status =
          in_block ? importing.import_block(changed.first_block(), bytes_of(good.block), true)
                   : importing.import_tail(changed.open_block(), {});
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
  }
}

TEST(FuzzRestoredState, logits_without_a_value_are_refused) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Stored changed = stored_prefix();
    std::memcpy(changed.tail.data() + changed.tail.size() - 40, &value, sizeof value);
    Sequence sequence(tiny_model());
    EXPECT_EQ(restore(changed, sequence).code(), StatusCode::kCorrupt);
  }
}

}  // namespace
}  // namespace cairn::session
