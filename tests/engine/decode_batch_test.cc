// Verified drafts (spec/dspark.md sections 5, 6, 10): whatever is proposed and however much of it
// is accepted, a sequence holds to the bit what it would hold had its tokens been decoded one by
// one.
#include "engine/decode_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/sequence.h"

namespace cairn::engine {
namespace {

constexpr std::size_t kLength = 280;  // of the timeline: past two blocks

std::shared_ptr<const LoadedModel> tiny_a(std::int32_t max_context = 0) {
  ModelOptions options;
  options.max_context = max_context;
  auto model = Model::open(*Runtime::create(), CAIRN_SOURCE_DIR "/examples/models/tiny-a", options);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model->state();
}

// Everything a ready sequence holds.
struct State {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::byte> tail;  // the logits are in it
  std::int64_t cache_bytes = 0;
  bool operator==(const State&) const = default;
};

State state_of(const Sequence& sequence) {
  EXPECT_TRUE(sequence.ready());
  State state;
  for (std::int64_t i = 0; i < sequence.n_blocks(); ++i) {
    state.blocks.push_back(sequence.page(i)->bytes);
  }
  state.tail = sequence.export_tail();
  state.cache_bytes = sequence.cache().private_bytes();
  return state;
}

// Computed once for the program.
struct Timeline {
  std::shared_ptr<const LoadedModel> model = tiny_a();
  std::vector<TokenId> tokens;
  std::vector<State> states{1};            // by the number of tokens decoded; none of nothing
  std::vector<std::vector<float>> logits;  // after each token

  Timeline() {
    std::mt19937 random(5);
    Sequence sequence(model);
    for (std::size_t i = 0; i < kLength; ++i) {
      tokens.push_back(static_cast<TokenId>(3 + random() % 500));
      EXPECT_TRUE(sequence.decode(tokens.back()).ok());
      states.push_back(state_of(sequence));
      logits.emplace_back(sequence.logits().begin(), sequence.logits().end());
    }
  }
  static const Timeline& plain() {
    static const Timeline timeline;
    return timeline;
  }
};

class Drafts : public testing::Test {
 protected:
  // At `position`, as a store would bring it back.
  Sequence at(std::size_t position) const {
    Sequence sequence(model_);
    const State& state = plain_[position];
    const std::span<const TokenId> tokens = std::span(tokens_).first(position);
    const std::size_t block = kBlockTokens;
    for (std::size_t i = 0; i < state.blocks.size(); ++i) {
      EXPECT_TRUE(
          sequence.import_block(tokens.subspan(i * block, block), state.blocks[i], true).ok());
    }
    EXPECT_TRUE(sequence.import_tail(tokens.subspan(state.blocks.size() * block), state.tail).ok());
    return sequence;
  }

  // `n` drafts after the token at `position`, the first `n_right` of them those of the timeline.
  std::vector<TokenId> drafts(std::size_t position, std::size_t n, std::size_t n_right) const {
    std::vector<TokenId> drafts;
    for (std::size_t i = 0; i < n; ++i) {
      const TokenId right = tokens_[position + 1 + i];
      drafts.push_back(i < n_right ? right : (right + 1 + static_cast<TokenId>(i)) % 500);
    }
    return drafts;
  }

  // A round at `position`, then whether all that it left behind is right.
  void round(Sequence& sequence, std::size_t n, std::size_t n_right) const {
    const auto position = static_cast<std::size_t>(sequence.position());
    SCOPED_TRACE(std::to_string(n_right) + " of " + std::to_string(n) + " at " +
                 std::to_string(position));
    const std::vector<TokenId> proposed = drafts(position, n, n_right);
    DecodeRow row{.sequence = &sequence,
                  .token = tokens_[position],
                  .stop_requested = {},
                  .status = Status(),
                  .drafts = proposed};
    decode_together({&row, 1});
    ASSERT_TRUE(row.status.ok()) << row.status.to_string();
    ASSERT_EQ(row.drafts.size(), n);
    if (n > 0) {
      ASSERT_EQ(sequence.n_verified(), static_cast<std::int64_t>(n) + 1);
      EXPECT_FALSE(sequence.ready());
      EXPECT_EQ(sequence.position(), static_cast<std::int64_t>(position));
      for (std::size_t i = 0; i <= n_right; ++i) {
        const auto at = static_cast<std::int64_t>(i);
        EXPECT_TRUE(std::ranges::equal(sequence.verified_logits(at), logits_[position + i])) << i;
        EXPECT_TRUE(std::ranges::equal(sequence.verified_tokens(at),
                                       std::span(tokens_).first(position + 1 + i)));
      }
      sequence.accept(static_cast<std::int64_t>(n_right) + 1);
    }
    ASSERT_EQ(sequence.position(), static_cast<std::int64_t>(position + n_right + 1));
    EXPECT_TRUE(state_of(sequence) == plain_[position + n_right + 1]);
  }

  const std::shared_ptr<const LoadedModel> model_ = Timeline::plain().model;
  const std::vector<TokenId>& tokens_ = Timeline::plain().tokens;
  const std::vector<State>& plain_ = Timeline::plain().states;
  const std::vector<std::vector<float>>& logits_ = Timeline::plain().logits;
};

TEST_F(Drafts, a_round_at_every_position_leaves_what_single_steps_leave) {
  for (std::size_t position = 1; position < 265; ++position) {
    Sequence sequence = at(position);
    round(sequence, 5, position % 6);
  }
}

TEST_F(Drafts, any_part_of_any_proposal_is_accepted_around_a_block) {
  for (const std::size_t position : {1u, 2u, 3u, 15u, 16u, 121u, 122u, 126u, 127u, 128u, 129u}) {
    for (std::size_t n = 1; n <= kMaxDrafts; ++n) {
      for (std::size_t n_right = 0; n_right <= n; ++n_right) {
        Sequence sequence = at(position);
        round(sequence, n, n_right);
      }
    }
  }
}

TEST_F(Drafts, rounds_one_after_the_other_are_single_steps) {
  std::mt19937 random(1);
  for (int walk = 0; walk < 4; ++walk) {
    Sequence sequence(model_);
    ASSERT_TRUE(sequence.prefill(std::span(tokens_).first(1 + random() % 5)).ok());
    while (sequence.position() + kMaxDrafts + 1 < static_cast<std::int64_t>(kLength)) {
      const std::size_t n = random() % (kMaxDrafts + 1);
      round(sequence, n, random() % (n + 1));
    }
  }
}

TEST_F(Drafts, a_round_that_is_stopped_or_given_up_leaves_no_trace) {
  for (const std::size_t position : {40u, 41u, 123u, 125u, 127u, 128u}) {
    const std::vector<TokenId> proposed = drafts(position, 5, 5);
    Sequence sequence = at(position);
    const State before = state_of(sequence);
    for (int n_layers = 0; n_layers <= model_->config().n_layers; ++n_layers) {
      int n_asked = 0;
      DecodeRow row{.sequence = &sequence,
                    .token = tokens_[position],
                    .stop_requested = [&] { return n_asked++ == n_layers; },
                    .status = Status(),
                    .drafts = proposed};
      decode_together({&row, 1});
      if (n_layers < model_->config().n_layers) {
        EXPECT_EQ(row.status.code(), StatusCode::kCancelled);
      } else {
        ASSERT_TRUE(row.status.ok()) << "one question a layer";
        EXPECT_EQ(sequence.n_verified(), 6);
        sequence.abandon_prefill();
      }
      EXPECT_EQ(sequence.n_verified(), 0);
      EXPECT_EQ(sequence.tokens().size(), position);
      EXPECT_TRUE(state_of(sequence) == before) << position << ", layer " << n_layers;
    }
    round(sequence, 5, 3);
  }
}

TEST_F(Drafts, what_cannot_be_verified_is_left_out) {
  const auto small = tiny_a(/*max_context=*/20);
  Sequence sequence(small);
  ASSERT_TRUE(sequence.prefill(std::span(tokens_).first(17)).ok());
  const auto decode = [&](std::span<const TokenId> proposed) {
    DecodeRow row{.sequence = &sequence,
                  .token = tokens_[static_cast<std::size_t>(sequence.position())],
                  .stop_requested = {},
                  .status = Status(),
                  .drafts = proposed};
    decode_together({&row, 1});
    return row;
  };
  const std::vector<TokenId> unknown = {1 << 30};
  EXPECT_EQ(decode(unknown).status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(sequence.ready());

  const std::vector<TokenId> proposed = drafts(17, 5, 5);
  const DecodeRow at_the_end = decode(proposed);
  ASSERT_TRUE(at_the_end.status.ok()) << at_the_end.status.to_string();
  EXPECT_EQ(at_the_end.drafts.size(), 2u) << "the context has room for three tokens";
  sequence.accept(1);

  sequence.forget_windows();  // they are computed again, which drafts are no part of
  const DecodeRow replayed = decode(proposed);
  ASSERT_TRUE(replayed.status.ok()) << replayed.status.to_string();
  EXPECT_TRUE(replayed.drafts.empty());
  EXPECT_EQ(sequence.position(), 19);
  EXPECT_TRUE(std::ranges::equal(sequence.logits(), logits_[18]));
  ASSERT_TRUE(decode(proposed).status.ok());
  EXPECT_EQ(decode(proposed).status.code(), StatusCode::kContextFull);
}

}  // namespace
}  // namespace cairn::engine
