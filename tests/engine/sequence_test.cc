// However a timeline is computed, cut, stored or restored, its state is the same to the bit, unless
// a bounded replay was asked for. All in reference arithmetic.
#include "engine/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/loaded_model.h"
#include "tests/golden_runner/case_file.h"

namespace cairn::engine {
namespace {

using ModelPtr = std::shared_ptr<LoadedModel>;

struct Checkpoint {
  std::string folder, case_file;
};
const Checkpoint kTinyA{CAIRN_SOURCE_DIR "/examples/models/tiny-a",
                        CAIRN_TEST_DATA "/tiny-a/long.ref.safetensors"};
const Checkpoint kTinyB{CAIRN_TEST_DATA "/tiny-b/model",
                        CAIRN_TEST_DATA "/tiny-b/mid.ref.safetensors"};

// One model for every combination of options, opened once.
ModelPtr model_of(const Checkpoint& checkpoint, int chunk = 64, int threads = 2) {
  static std::map<std::tuple<std::string, int, int>, ModelPtr> models;
  ModelPtr& model = models[{checkpoint.folder, chunk, threads}];
  if (model) return model;
  RuntimeOptions runtime_options;
  runtime_options.compute_threads = threads;
  auto runtime = Runtime::create(runtime_options);
  EXPECT_TRUE(runtime.ok());
  ModelOptions options;
  options.prefill_chunk = chunk;
  auto opened = Model::open(*runtime, checkpoint.folder, options);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  model = opened->state();
  return model;
}

std::vector<TokenId> prompt_of(const Checkpoint& checkpoint, std::size_t n) {
  auto file = golden::CaseFile::open(checkpoint.case_file, "ref");
  EXPECT_TRUE(file.ok());
  const std::vector<std::int64_t> ids = file->integers("prompt_ids");
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>(ids[i % ids.size()]));
  return prompt;
}

using Tokens = std::span<const TokenId>;

// Everything a ready sequence holds.
struct State {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::byte> tail;
  bool operator==(const State&) const = default;
};

State state_of(const Sequence& sequence) {
  EXPECT_TRUE(sequence.ready());
  State state;
  for (std::int64_t i = 0; i < sequence.n_blocks(); ++i) {
    state.blocks.push_back(sequence.page(i)->bytes);
  }
  state.tail = sequence.export_tail();
  return state;
}

State after_prefill(const ModelPtr& model, Tokens prompt) {
  Sequence sequence(model);
  EXPECT_TRUE(sequence.prefill(prompt).ok());
  return state_of(sequence);
}

// Prefill calls of the given lengths, the last one repeated.
State in_pieces(const ModelPtr& model, Tokens prompt, const std::vector<std::size_t>& lengths) {
  Sequence sequence(model);
  std::size_t at = 0;
  for (std::size_t i = 0; at < prompt.size(); ++i) {
    const std::size_t n = std::min(lengths[std::min(i, lengths.size() - 1)], prompt.size() - at);
    EXPECT_TRUE(sequence.prefill(prompt.subspan(at, n)).ok());
    at += n;
  }
  return state_of(sequence);
}

Sequence restored(const ModelPtr& model, const State& state, Tokens tokens, bool with_tail) {
  Sequence sequence(model);
  for (std::size_t i = 0; i < state.blocks.size(); ++i) {
    Result<KvPagePtr> page = sequence.make_page(state.blocks[i]);
    EXPECT_TRUE(page.ok());
    EXPECT_TRUE(sequence
                    .import_page(tokens.subspan(i * kBlockTokens, kBlockTokens), *page,
                                 /*exact=*/true)
                    .ok());
  }
  if (with_tail) {
    EXPECT_TRUE(
        sequence.import_tail(tokens.subspan(state.blocks.size() * kBlockTokens), state.tail).ok());
  }
  return sequence;
}

void expect_pieces_do_not_matter(const Checkpoint& checkpoint, std::size_t n, int random_splits) {
  const std::vector<TokenId> prompt = prompt_of(checkpoint, n);
  const ModelPtr model = model_of(checkpoint);
  const State whole = after_prefill(model, prompt);
  EXPECT_TRUE(in_pieces(model, prompt, {1}) == whole) << "token by token";
  EXPECT_TRUE(in_pieces(model, prompt, {7}) == whole);
  EXPECT_TRUE(in_pieces(model, prompt, {64}) == whole);
  EXPECT_TRUE(in_pieces(model, prompt, {n - 9, 1}) == whole) << "prefill, then decode";
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int i = 0; i < random_splits; ++i) {
    std::vector<std::size_t> lengths;
    for (std::size_t total = 0; total < n; total += lengths.back()) {
      lengths.push_back(random() % 3 ? 1 + random() % 4 : 1 + random() % 90);
    }
    EXPECT_TRUE(in_pieces(model, prompt, lengths) == whole) << "seed " << seed << ", split " << i;
  }
}

TEST(Sequence, prefill_in_any_pieces_is_the_same_on_tiny_a) {
  expect_pieces_do_not_matter(kTinyA, 301, 4);
}

TEST(Sequence, prefill_in_any_pieces_is_the_same_on_tiny_b) {
  expect_pieces_do_not_matter(kTinyB, 131, 1);
}

TEST(Sequence, threads_and_chunk_sizes_do_not_matter) {
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 201), short_prompt = prompt_of(kTinyB, 70);
  const State a = after_prefill(model_of(kTinyA), prompt);
  const State b = after_prefill(model_of(kTinyB), short_prompt);
  for (const int threads : {1, 4}) {
    EXPECT_TRUE(after_prefill(model_of(kTinyA, 64, threads), prompt) == a) << threads;
    EXPECT_TRUE(after_prefill(model_of(kTinyB, 64, threads), short_prompt) == b) << threads;
  }
  for (const int chunk : {1, 5, 16, 300}) {
    EXPECT_TRUE(after_prefill(model_of(kTinyA, chunk), prompt) == a) << chunk;
  }
  EXPECT_TRUE(after_prefill(model_of(kTinyB, 9), short_prompt) == b);
}

TEST(Sequence, every_row_of_a_full_pass_is_that_of_a_decode_step) {
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 90);
  const ModelPtr model = model_of(kTinyA);
  Sequence full(model), stepwise(model);
  ASSERT_TRUE(full.prefill(prompt, {.decoder = DecoderPass::kFull, .logits_from = 0}).ok());
  const std::span<const float> rows = full.logits_rows();
  const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
  ASSERT_EQ(rows.size(), prompt.size() * vocab);
  for (std::size_t p = 0; p < prompt.size(); ++p) {
    ASSERT_TRUE(stepwise.decode(prompt[p]).ok());
    EXPECT_TRUE(std::ranges::equal(stepwise.logits(), rows.subspan(p * vocab, vocab))) << p;
  }
}

// As a draft is verified: several rows at once on a live sequence.
TEST(Sequence, a_decode_of_many_rows_is_many_decodes) {
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 140);
  const ModelPtr model = model_of(kTinyA);
  const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
  Sequence at_once(model), stepwise(model);
  const Tokens known = Tokens(prompt).first(121), rest = Tokens(prompt).subspan(121);
  ASSERT_TRUE(at_once.prefill(known).ok() && stepwise.prefill(known).ok());
  ASSERT_TRUE(at_once.prefill(rest, {.decoder = DecoderPass::kFull, .logits_from = 121}).ok());
  const std::vector<float> rows(at_once.logits_rows().begin(), at_once.logits_rows().end());
  ASSERT_EQ(rows.size(), rest.size() * vocab);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    ASSERT_TRUE(stepwise.decode(rest[i]).ok());
    EXPECT_TRUE(std::ranges::equal(stepwise.logits(), std::span(rows).subspan(i * vocab, vocab)))
        << i;
  }
  EXPECT_TRUE(state_of(at_once) == state_of(stepwise));
}

TEST(Sequence, an_abandoned_prefill_can_be_taken_up_at_every_step) {
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 215);
  const ModelPtr model = model_of(kTinyA, 24);
  const State whole = after_prefill(model, prompt);
  for (const std::size_t known : {std::size_t{0}, std::size_t{33}}) {
    bool finished = false;
    for (int steps = 0; !finished; ++steps) {
      SCOPED_TRACE(testing::Message() << known << " known, " << steps << " steps");
      Sequence sequence(model);
      ASSERT_TRUE(known == 0 || sequence.prefill(Tokens(prompt).first(known)).ok());
      ASSERT_TRUE(sequence.start_prefill(Tokens(prompt).subspan(known)).ok());
      for (int i = 0; i < steps && sequence.prefilling(); ++i) sequence.prefill_step();
      finished = !sequence.prefilling();
      sequence.abandon_prefill();
      ASSERT_FALSE(sequence.prefilling());
      const auto position = static_cast<std::size_t>(sequence.position());
      ASSERT_TRUE(std::ranges::equal(sequence.tokens(), Tokens(prompt).first(position)));
      ASSERT_EQ(sequence.ready(), finished || (steps == 0 && known > 0));
      if (!finished && position == 0) {
        EXPECT_EQ(sequence.prefill({}).code(), StatusCode::kInvalidArgument);
      }
      ASSERT_TRUE(sequence.prefill(Tokens(prompt).subspan(position)).ok());
      EXPECT_TRUE(sequence.exact());
      EXPECT_TRUE(state_of(sequence) == whole);
    }
  }
}

// Stops a pass at one of the questions it asks, one a layer, counted from 0 over all steps.
StopRequested stop_at(int question) {
  return [question, asked = 0]() mutable { return asked++ == question; };
}

TEST(Sequence, a_decode_that_is_stopped_before_any_layer_changes_nothing) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 258);
  // With an unfinished group and without, the last token of a block, the first of the next.
  for (const std::size_t known :
       {std::size_t{40}, std::size_t{41}, std::size_t{255}, std::size_t{256}}) {
    Sequence sequence(model);
    ASSERT_TRUE(sequence.prefill(Tokens(prompt).first(known)).ok());
    const State before = state_of(sequence);
    const std::vector<float> logits(sequence.logits().begin(), sequence.logits().end());
    const std::int64_t private_bytes = sequence.private_bytes();
    for (int layer = 0; layer < model->config().n_layers; ++layer) {
      EXPECT_EQ(sequence.decode(prompt[known], stop_at(layer)).code(), StatusCode::kCancelled);
      EXPECT_FALSE(sequence.prefilling());
      EXPECT_TRUE(std::ranges::equal(sequence.logits(), logits));
      EXPECT_TRUE(state_of(sequence) == before) << known << ", layer " << layer;
    }
    EXPECT_LE(sequence.private_bytes(), private_bytes + 4 * 4096) << "vectors of tokens at most";
    const StopRequested never = stop_at(model->config().n_layers);
    ASSERT_TRUE(sequence.decode(prompt[known], never).ok()) << "one question a layer";
    EXPECT_TRUE(state_of(sequence) == after_prefill(model, Tokens(prompt).first(known + 1)));
  }
}

TEST(Sequence, a_prefill_that_is_stopped_before_any_layer_can_be_taken_up) {
  const ModelPtr model = model_of(kTinyA, 100);  // chunks that complete a block, and half of one
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 195);
  const State whole = after_prefill(model, prompt);
  const int n_layers = model->config().n_layers;
  for (const std::size_t known : {std::size_t{0}, std::size_t{61}}) {
    for (int question = 0; question < 2 * n_layers; question += known == 0 ? 7 : 1) {
      SCOPED_TRACE(testing::Message() << known << " known, stopped at " << question);
      Sequence sequence(model);
      ASSERT_TRUE(known == 0 || sequence.prefill(Tokens(prompt).first(known)).ok());
      ASSERT_TRUE(sequence.start_prefill(Tokens(prompt).subspan(known)).ok());
      const StopRequested stop = stop_at(question);
      int steps = 0;
      while (sequence.prefilling() && sequence.prefill_step(stop)) ++steps;
      ASSERT_TRUE(sequence.prefilling());
      EXPECT_EQ(steps, question / n_layers);
      if (question % 2) {  // go on with the plan, or with another one
        while (sequence.prefilling()) sequence.prefill_step();
      } else {
        sequence.abandon_prefill();
        EXPECT_EQ(sequence.position(), static_cast<std::int64_t>(known) + 100 * steps);
        ASSERT_TRUE(sequence.prefill(Tokens(prompt).subspan(sequence.tokens().size())).ok());
      }
      EXPECT_TRUE(state_of(sequence) == whole);
    }
  }
}

TEST(Sequence, a_twice_abandoned_prefill_can_be_finished_without_more_tokens) {
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 160);
  const ModelPtr model = model_of(kTinyA, 16);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.start_prefill(prompt).ok());
  for (int i = 0; i < 7; ++i) sequence.prefill_step();
  sequence.abandon_prefill();
  ASSERT_TRUE(sequence.start_prefill(Tokens(prompt).subspan(112)).ok());
  sequence.prefill_step();
  sequence.abandon_prefill();
  const auto position = static_cast<std::size_t>(sequence.position());
  ASSERT_TRUE(sequence.prefill({}).ok());  // windows and logits of what is there
  EXPECT_TRUE(state_of(sequence) == after_prefill(model, Tokens(prompt).first(position)));
}

TEST(Sequence, blocks_and_tail_restore_the_state) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 300);
  for (const std::size_t n : {1, 2, 15, 16, 17, 127, 128, 129, 200, 255, 256, 257}) {
    const Tokens tokens = Tokens(prompt).first(n);
    Sequence original(model);
    ASSERT_TRUE(original.prefill(tokens).ok());
    const State state = state_of(original);
    Sequence copy = restored(model, state, tokens, /*with_tail=*/true);
    EXPECT_TRUE(copy.ready());
    EXPECT_TRUE(state_of(copy) == state) << n;
    for (std::size_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(original.decode(prompt[n + step]).ok() && copy.decode(prompt[n + step]).ok());
      EXPECT_TRUE(std::ranges::equal(copy.logits(), original.logits())) << n << "+" << step;
    }
    EXPECT_TRUE(state_of(copy) == state_of(original)) << n;
  }
}

TEST(Sequence, blocks_alone_restore_the_state_by_a_deep_replay) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 520);
  Sequence original(model);
  ASSERT_TRUE(original.prefill(Tokens(prompt).first(512)).ok());
  State blocks = state_of(original);
  const State at_512 = blocks;

  Sequence recomputed = restored(model, blocks, prompt, false);
  EXPECT_FALSE(recomputed.ready());
  ASSERT_TRUE(recomputed.start_prefill({}).ok());
  EXPECT_GT(recomputed.prefill_next(), 0) << "the replay must not start over";
  EXPECT_EQ(recomputed.replayed(), 512 - recomputed.prefill_next());
  while (recomputed.prefilling()) recomputed.prefill_step();
  EXPECT_TRUE(recomputed.exact());
  EXPECT_TRUE(state_of(recomputed) == at_512);

  Sequence extended = restored(model, blocks, prompt, false);
  ASSERT_TRUE(extended.prefill(Tokens(prompt).subspan(512)).ok());
  EXPECT_TRUE(extended.exact());
  EXPECT_TRUE(state_of(extended) == after_prefill(model, prompt));

  blocks.blocks.resize(2);  // a shorter stored prefix, a longer suffix
  Sequence longer = restored(model, blocks, prompt, false);
  ASSERT_TRUE(longer.prefill(Tokens(prompt).subspan(256)).ok());
  EXPECT_TRUE(state_of(longer) == after_prefill(model, prompt));
}

TEST(Sequence, a_deep_replay_can_be_abandoned_at_every_step) {
  const ModelPtr model = model_of(kTinyA, 32);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 300);
  const State whole = after_prefill(model, prompt);
  State blocks = whole;
  bool finished = false;
  for (int steps = 1; !finished; ++steps) {
    Sequence sequence = restored(model, blocks, prompt, false);
    ASSERT_TRUE(sequence.start_prefill(Tokens(prompt).subspan(256)).ok());
    for (int i = 0; i < steps && sequence.prefilling(); ++i) sequence.prefill_step();
    finished = !sequence.prefilling();
    sequence.abandon_prefill();
    const auto position = static_cast<std::size_t>(sequence.position());
    ASSERT_TRUE(sequence.prefill(Tokens(prompt).subspan(position)).ok());
    EXPECT_TRUE(state_of(sequence) == whole) << steps;
  }
}

TEST(Sequence, a_bounded_restore_says_so_and_stays_close) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 390);
  Sequence original(model);
  ASSERT_TRUE(original.prefill(prompt).ok());
  const State state = state_of(original);

  Sequence sequence = restored(model, state, prompt, false);
  EXPECT_TRUE(sequence.exact());
  const std::size_t stored = state.blocks.size() * kBlockTokens;
  ASSERT_TRUE(
      sequence.start_prefill(Tokens(prompt).subspan(stored), {.bounded_restore = true}).ok());
  EXPECT_FALSE(sequence.plan_is_exact());
  EXPECT_EQ(sequence.replayed(), model->config().window);
  while (sequence.prefilling()) sequence.prefill_step();
  EXPECT_FALSE(sequence.exact());
  for (std::size_t i = 0; i < state.blocks.size(); ++i) {
    EXPECT_TRUE(sequence.page(static_cast<std::int64_t>(i))->bytes == state.blocks[i])
        << "stored rows are never rewritten";
  }
  // Other windows, other logits; but of the same size, and pointing the same way.
  double dot = 0, ours = 0, theirs = 0;
  for (std::size_t i = 0; i < original.logits().size(); ++i) {
    const double a = double{sequence.logits()[i]}, b = double{original.logits()[i]};
    ASSERT_TRUE(std::isfinite(a));
    dot += a * b;
    ours += a * a;
    theirs += b * b;
  }
  EXPECT_GT(dot / std::sqrt(ours * theirs), 0.5);
  ASSERT_TRUE(sequence.decode(prompt[0]).ok());
  EXPECT_FALSE(sequence.exact()) << "what follows was computed from it";
}

TEST(Sequence, a_bounded_pass_within_the_window_is_exact) {
  const ModelPtr model = model_of(kTinyA);
  const auto window = static_cast<std::size_t>(model->config().window);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 200);
  for (const std::size_t n : {std::size_t{1}, window - 1, window}) {
    Sequence sequence(model);
    ASSERT_TRUE(sequence.prefill(Tokens(prompt).first(n), {.decoder = DecoderPass::kReplay}).ok());
    EXPECT_TRUE(sequence.exact());
    EXPECT_TRUE(state_of(sequence) == after_prefill(model, Tokens(prompt).first(n))) << n;
  }
  Sequence longer(model);
  ASSERT_TRUE(longer.prefill(prompt, {.decoder = DecoderPass::kReplay}).ok());
  EXPECT_FALSE(longer.exact());
}

TEST(Sequence, a_bounded_pass_keeps_the_windows_of_a_live_sequence) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 80);
  for (const std::size_t known : {9, 70}) {
    for (const std::size_t n : {known + 1, known + 5}) {
      Sequence sequence(model);
      ASSERT_TRUE(sequence.prefill(Tokens(prompt).first(known)).ok());
      ASSERT_TRUE(
          sequence
              .prefill(Tokens(prompt).subspan(known, n - known), {.decoder = DecoderPass::kReplay})
              .ok());
      EXPECT_TRUE(sequence.exact());
      EXPECT_TRUE(state_of(sequence) == after_prefill(model, Tokens(prompt).first(n))) << n;
    }
  }
}

TEST(Sequence, forgotten_windows_come_back) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 231);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.prefill(prompt).ok());
  const State state = state_of(sequence);
  sequence.forget_windows();
  EXPECT_FALSE(sequence.ready());
  ASSERT_TRUE(sequence.prefill({}).ok());
  EXPECT_TRUE(state_of(sequence) == state);
  ASSERT_TRUE(sequence.prefill({}).ok());  // nothing to do
  EXPECT_TRUE(state_of(sequence) == state);
}

// A sequence of `tokens` whose first n_shared blocks are those of `from`.
Sequence branch_of(const Sequence& from, std::int64_t n_shared, Tokens tokens) {
  Sequence branch(model_of(kTinyA));
  for (std::int64_t block = 0; block < n_shared; ++block) {
    const auto first = static_cast<std::size_t>(block * kBlockTokens);
    EXPECT_TRUE(branch
                    .import_page(tokens.subspan(first, kBlockTokens), from.page(block),
                                 /*exact=*/true)
                    .ok());
  }
  EXPECT_TRUE(
      branch.prefill(tokens.subspan(static_cast<std::size_t>(n_shared * kBlockTokens))).ok());
  return branch;
}

// Two timelines part at a block's boundary or inside a block. Whatever they do after that, each is
// what it would be alone, and the blocks before exist once.
TEST(Sequence, timelines_share_the_blocks_before_they_part) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  std::printf("seed %u\n", seed);
  const ModelPtr model = model_of(kTinyA);
  std::vector<std::size_t> partings = {128, 256, 129, 255};
  for (int i = 0; i < 3; ++i) partings.push_back(128 + random() % 200);
  for (const std::size_t parting : partings) {
    SCOPED_TRACE(testing::Message() << "parting at " << parting << ", seed " << seed);
    const std::vector<TokenId> ours = prompt_of(kTinyA, 340);
    std::vector<TokenId> theirs = ours;
    for (std::size_t i = parting; i < theirs.size(); ++i) {
      theirs[i] = static_cast<TokenId>(3 + random() % 500);
    }
    const std::size_t n = parting + 1 + random() % (theirs.size() - parting - 1);
    const auto n_shared = static_cast<std::int64_t>(parting / kBlockTokens);

    auto original = std::make_unique<Sequence>(model);
    ASSERT_TRUE(original->prefill(Tokens(ours).first(n)).ok());
    const State original_alone = state_of(*original);
    auto branch =
        std::make_unique<Sequence>(branch_of(*original, n_shared, Tokens(theirs).first(n)));
    const State branch_alone = state_of(*branch);
    EXPECT_TRUE(branch_alone == after_prefill(model, Tokens(theirs).first(n)));
    EXPECT_TRUE(branch->exact());

    // Both go on, in turns.
    for (std::size_t i = n; i < std::min(n + 3, ours.size()); ++i) {
      ASSERT_TRUE(original->decode(ours[i]).ok() && branch->decode(theirs[i]).ok());
    }
    ASSERT_TRUE(original->prefill(Tokens(ours).subspan(original->tokens().size())).ok());
    ASSERT_TRUE(branch->prefill(Tokens(theirs).subspan(branch->tokens().size())).ok());
    EXPECT_TRUE(state_of(*original) == after_prefill(model, ours));
    EXPECT_TRUE(state_of(*branch) == after_prefill(model, theirs));

    std::vector<std::weak_ptr<const KvPage>> shared;
    for (std::int64_t block = 0; block < branch->n_blocks(); ++block) {
      EXPECT_EQ(branch->page(block) == original->page(block), block < n_shared);
      if (block < n_shared) shared.push_back(branch->page(block));
    }
    original.reset();
    for (const auto& page : shared) EXPECT_EQ(page.use_count(), 1);
    ASSERT_TRUE(branch->decode(5).ok());
    branch.reset();
    for (const auto& page : shared) EXPECT_TRUE(page.expired());
  }
}

TEST(Sequence, equal_blocks_computed_twice_can_be_held_once) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 270);
  Sequence first(model), second(model);
  ASSERT_TRUE(first.prefill(Tokens(prompt).first(260)).ok());
  ASSERT_TRUE(second.prefill(Tokens(prompt).first(259)).ok());
  for (std::int64_t block = 0; block < 2; ++block) {
    const std::weak_ptr<const KvPage> own = second.page(block);
    ASSERT_EQ(own.lock()->bytes, first.page(block)->bytes);
    second.replace_page(block, first.page(block));
    EXPECT_TRUE(own.expired());
  }
  ASSERT_TRUE(second.prefill(Tokens(prompt).subspan(259)).ok());
  EXPECT_TRUE(state_of(second) == after_prefill(model, prompt));
  EXPECT_TRUE(state_of(first) == after_prefill(model, Tokens(prompt).first(260)));
}

TEST(Sequence, memory_is_pages_and_what_is_private) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 513);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.prefill(Tokens(prompt).first(127)).ok());
  const std::int64_t open_block = sequence.private_bytes();
  EXPECT_EQ(sequence.bytes(), open_block);
  EXPECT_GT(open_block, sequence.block_bytes() + model->info().window_bytes);
  for (const TokenId token : Tokens(prompt).subspan(127)) ASSERT_TRUE(sequence.decode(token).ok());
  EXPECT_EQ(sequence.bytes() - sequence.private_bytes(), 4 * sequence.block_bytes());
  // Only the tokens themselves and their Engram classes grow, in vectors that double.
  EXPECT_LE(sequence.private_bytes(), open_block + 2 * 513 * 8);
}

TEST(Sequence, bad_requests_leave_it_as_it_was) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 40);
  Sequence empty(model);
  EXPECT_EQ(empty.prefill({}).code(), StatusCode::kInvalidArgument);
  Sequence sequence(model);
  ASSERT_TRUE(sequence.prefill(prompt).ok());
  const State state = state_of(sequence);
  for (const TokenId bad : {TokenId{-1}, static_cast<TokenId>(model->config().vocab_size)}) {
    EXPECT_EQ(sequence.decode(bad).code(), StatusCode::kInvalidArgument);
  }
  const std::vector<TokenId> too_long(static_cast<std::size_t>(model->info().max_context), 1);
  EXPECT_EQ(sequence.prefill(too_long).code(), StatusCode::kContextFull);
  EXPECT_TRUE(sequence.ready());
  EXPECT_TRUE(state_of(sequence) == state);
}

TEST(Sequence, blocks_and_tails_of_another_size_are_corrupt) {
  const ModelPtr model = model_of(kTinyA);
  const std::vector<TokenId> prompt = prompt_of(kTinyA, 150);
  const State state = after_prefill(model, prompt);
  std::vector<std::byte> block = state.blocks[0];
  block.pop_back();
  Sequence sequence(model);
  EXPECT_EQ(sequence.make_page(block).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(sequence.make_page({}).status().code(), StatusCode::kCorrupt);
  const Result<KvPagePtr> page = sequence.make_page(state.blocks[0]);
  EXPECT_EQ(sequence.import_page(Tokens(prompt).first(127), *page, true).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(sequence.position(), 0);
  for (const std::size_t cut : {std::size_t{1}, state.tail.size() / 2, state.tail.size()}) {
    Sequence other = restored(model, state, prompt, false);
    EXPECT_EQ(other
                  .import_tail(Tokens(prompt).subspan(128),
                               std::span(state.tail).first(state.tail.size() - cut))
                  .code(),
              StatusCode::kCorrupt);
  }
}

}  // namespace
}  // namespace cairn::engine
