// What a decode step takes from the heap once its memory is warm: the engine nothing, kernels small
// scratch of a call.
#include "engine/step_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/decode_batch.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"
#include "tests/support/failing_allocations.h"

namespace cairn::engine {
namespace {

TEST(StepMemory, a_scope_gives_back_what_was_taken_in_it) {
  StepMemory memory;
  const StepVector<float> outer(100, 1.0f, &memory);
  const float* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    const StepMemory::Scope scope(memory);
    StepVector<float> inner(5000, 2.0f, &memory);
    if (round == 0) first = inner.data();
    EXPECT_EQ(inner.data(), first);
    const StepVector<std::byte> large(std::size_t{9} << 20, std::byte{3}, &memory);  // a block more
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.data()) % 64, 0u);
    EXPECT_EQ(inner[4999], 2.0f);
  }
  for (const float v : outer) EXPECT_EQ(v, 1.0f);
}

// --- Kernels whose allocations are not counted

kernels::KernelTable inner;

template <auto kSlot, class... Args>
void uncounted(Args... args) {
  const std::int64_t left = std::exchange(test::allocations_left, -1);
  (inner.*kSlot)(args...);
  test::allocations_left = left;
}
template <auto kSlot, class... Args>
void wrap(kernels::KernelTable& table, void (*)(Args...)) {
  table.*kSlot = uncounted<kSlot, Args...>;
}
template <auto... kSlots>
void wrap_all(kernels::KernelTable& table) {
  (wrap<kSlots>(table, inner.*kSlots), ...);
}

kernels::KernelTable uncounted_kernels(const kernels::KernelTable& table) {
  inner = table;
  kernels::KernelTable wrapped = table;
  using T = kernels::KernelTable;
  wrap_all<&T::matmul_fp8_q8, &T::matmul_fp4_q8, &T::matmul_fp8, &T::matmul_fp4, &T::matmul_bf16,
           &T::matmul_f32, &T::quantise_q8, &T::encode_row, &T::rms_norm, &T::rope, &T::hc_mix,
           &T::hc_collapse, &T::hc_expand, &T::hc_pass, &T::sparse_attention, &T::compressor_pool,
           &T::index_scores, &T::top_k, &T::candidate_blocks, &T::route, &T::swiglu,
           &T::engram_hash, &T::engram_gather, &T::engram_update>(wrapped);
  return wrapped;
}

// Heap allocations of this thread while `work` runs.
template <class Work>
std::int64_t allocations_of(const Work& work) {
  constexpr std::int64_t kMany = 1'000'000;
  test::allocations_left = kMany;
  work();
  const std::int64_t n = kMany - test::allocations_left;
  test::allocations_left = -1;
  return n;
}

// One thread, so that all kernels run on this one.
std::shared_ptr<LoadedModel> tiny_model() {
  RuntimeOptions options;
  options.compute_threads = 1;
  const Runtime runtime = *Runtime::create(options);
  auto model = *LoadedModel::load(runtime.state(), CAIRN_SOURCE_DIR "/examples/models/tiny-a", {});
  model->use_kernels(uncounted_kernels(model->kernels()));
  return model;
}

std::unique_ptr<Sequence> prefilled(const std::shared_ptr<LoadedModel>& model, int n_tokens) {
  auto sequence = std::make_unique<Sequence>(model);
  std::vector<TokenId> tokens;
  for (int i = 0; i < n_tokens; ++i) tokens.push_back(10 + i * 7 % 300);
  EXPECT_TRUE(sequence->prefill(tokens).ok());
  return sequence;
}

// Lengths between those at which the list of tokens grows and those at which a page begins.
constexpr int kPrompt = 140, kWarm = 8, kSteps = 40;

TEST(StepMemory, in_a_warm_decode_step_the_engine_takes_nothing_from_the_heap) {
  const auto model = tiny_model();
  const auto sequence = prefilled(model, kPrompt);
  for (int i = 0; i < kWarm; ++i) ASSERT_TRUE(sequence->decode(20 + i, [] { return false; }).ok());
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_EQ(allocations_of([&] {
                if (!sequence->decode(30 + i, [] { return false; }).ok()) FAIL();
              }),
              0)
        << "step " << i;
  }
}

TEST(StepMemory, in_a_warm_step_of_several_sequences_it_takes_nothing_from_the_heap) {
  const auto model = tiny_model();
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(prefilled(model, kPrompt + i));
  std::array<DecodeRow, 3> rows;
  for (int step = 0; step < kWarm + kSteps; ++step) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = {sequences[i].get(), static_cast<TokenId>(20 + step), [] { return false; },
                 Status()};
    }
    const std::int64_t n = allocations_of([&] { decode_together(rows); });
    for (const DecodeRow& row : rows) ASSERT_TRUE(row.status.ok());
    if (step >= kWarm) {
      EXPECT_EQ(n, 0) << "step " << step;
    }
  }
}

// Drafts are dropped then, and the token is computed alone.
TEST(StepMemory, a_round_that_runs_out_of_memory_leaves_what_single_steps_leave) {
  const auto model = tiny_model();
  const auto expected = prefilled(model, kPrompt);
  auto sequence = prefilled(model, kPrompt);
  const std::array<TokenId, 4> drafts = {31, 32, 33, 34};
  int n_failed = 0, n_dropped = 0;
  for (std::int64_t n = 0;; ++n) {
    const std::int64_t n_failed_before = test::n_failed_allocations;
    DecodeRow row{.sequence = sequence.get(),
                  .token = 30,
                  .stop_requested = {},
                  .status = Status(),
                  .drafts = drafts};
    test::fails_once = true;
    test::allocations_left = n;
    decode_together({&row, 1});
    test::allocations_left = -1;
    if (!row.status.ok()) {  // before the pass: the sequence is to be dropped
      EXPECT_EQ(row.status.code(), StatusCode::kOutOfMemory) << row.status.to_string();
      sequence = std::make_unique<Sequence>(model);
      ASSERT_TRUE(sequence->prefill(expected->tokens()).ok());
      ++n_failed;
      continue;
    }
    ASSERT_TRUE(expected->decode(30).ok());
    if (sequence->n_verified() > 0) {
      sequence->accept(3);
      for (const TokenId draft : {31, 32}) ASSERT_TRUE(expected->decode(draft).ok());
    } else {
      EXPECT_TRUE(row.drafts.empty());
      ++n_dropped;
    }
    ASSERT_EQ(sequence->tokens().size(), expected->tokens().size());
    ASSERT_TRUE(sequence->export_tail() == expected->export_tail()) << "allocation " << n;
    if (test::n_failed_allocations == n_failed_before) break;
    ++n_failed;
  }
  EXPECT_GT(n_failed, 0);
  EXPECT_GT(n_dropped, 0);
}

}  // namespace
}  // namespace cairn::engine
