// The table's entries have one type each, so one template wraps them all; what a call costs at
// least is said by one overload for each kind of arguments.
#include "engine/step_profile.h"

#include <algorithm>
#include <chrono>

namespace cairn::engine {
namespace {

using namespace kernels;  // NOLINT: arguments of every kernel
using Clock = std::chrono::steady_clock;

struct Cost {
  StepPart part;
  double bytes = 0, multiply_adds = 0;
};

double d(std::int64_t n) { return static_cast<double>(n); }

// Of a product of `rows` activations with a matrix.
template <class View>
Cost product(StepPart part, std::int64_t rows, const View& w, double bytes_per_weight) {
  return {part, d(w.rows) * d(w.cols) * bytes_per_weight, d(rows) * d(w.rows) * d(w.cols)};
}

template <class View>
bool has_shape(const View& w, std::int64_t rows, std::int64_t cols) {
  return w.rows == rows && w.cols == cols;
}

template <class View>
StepPart part_of_fp8(const ModelConfig& c, const View& w) {
  if (has_shape(w, std::int64_t{c.index_n_heads} * c.index_head_dim, c.q_rank)) {
    return StepPart::kIndexer;
  }
  if (has_shape(w, std::int64_t{c.hc_mult + 1} * c.dim,
                std::int64_t{c.engram_columns()} * c.engram_head_dim)) {
    return StepPart::kEngram;
  }
  return StepPart::kDense;
}

StepPart part_of_bf16(const ModelConfig& c, const Bf16View& w) {
  if (w.rows == c.vocab_size || w.rows == 1) return StepPart::kHead;  // of draft stages too
  if (has_shape(w, c.n_experts, c.dim) || has_shape(w, c.draft_n_experts, c.dim)) {
    return StepPart::kRouter;
  }
  if (has_shape(w, c.head_dim, c.dim)) return StepPart::kAttention;
  return StepPart::kIndexer;
}

constexpr double kFp4Bytes = 0.5 + 1.0 / 32, kFp8Bytes = 1 + 1.0 / 1024;

Cost cost_of(const ModelConfig&, const MatmulFp4Q8Args& a) {
  return product(StepPart::kExperts, a.rows, a.w, kFp4Bytes);
}
Cost cost_of(const ModelConfig&, const MatmulFp4Args& a) {
  return product(StepPart::kExperts, a.rows, a.w, kFp4Bytes);
}
Cost cost_of(const ModelConfig& c, const MatmulFp8Q8Args& a) {
  return product(part_of_fp8(c, a.w), a.rows, a.w, kFp8Bytes);
}
Cost cost_of(const ModelConfig& c, const MatmulFp8Args& a) {
  return product(part_of_fp8(c, a.w), a.rows, a.w, kFp8Bytes);
}
Cost cost_of(const ModelConfig& c, const MatmulBf16Args& a) {
  return product(part_of_bf16(c, a.w), a.rows, a.w, 2);
}
Cost cost_of(const ModelConfig&, const MatmulF32Args& a) {
  return product(StepPart::kStreams, a.rows, a.w, 4);
}
Cost cost_of(const ModelConfig&, const RmsNormArgs& a) {
  return {StepPart::kStreams, 4 * d(a.rows) * d(a.dim), 2 * d(a.rows) * d(a.dim)};
}
Cost cost_of(const ModelConfig&, const RopeArgs& a) {
  const double n = d(a.rows) * d(a.n_vectors) * d(a.rope_dim);
  return {StepPart::kAttention, 4 * n, 2 * n};
}
Cost cost_of(const ModelConfig&, const HcMixArgs& a) {
  const double n = d(a.rows) * d(a.n_streams) * d(a.dim);
  return {StepPart::kStreams, 4 * n + 4 * d(a.fn.rows) * d(a.fn.cols), n * d(a.fn.rows)};
}
Cost cost_of(const ModelConfig&, const HcCollapseArgs& a) {
  const double n = d(a.rows) * d(a.n_streams) * d(a.dim);
  return {StepPart::kStreams, 4 * n, n};
}
Cost cost_of(const ModelConfig&, const HcExpandArgs& a) {
  const double n = d(a.rows) * d(a.n_streams) * d(a.dim);
  return {StepPart::kStreams, 4 * n, n * d(a.n_streams + 1)};
}
Cost cost_of(const ModelConfig&, const HcPassArgs& a) {
  const HcExpandArgs& e = a.expand;
  const double n = d(e.rows) * d(e.n_streams) * d(e.dim);
  const double expanded = e.y == nullptr ? 0 : d(e.n_streams + 1);
  return {StepPart::kStreams, 4 * n + 4 * d(a.mix.fn.rows) * d(a.mix.fn.cols),
          n * (expanded + 1 + d(a.mix.fn.rows))};
}
Cost cost_of(const ModelConfig&, const QuantiseQ8Args& a) { return {StepPart::kDense, 4 * d(a.n)}; }
Cost cost_of(const ModelConfig&, const SparseAttentionArgs& a) {
  const double bytes = d(a.n_window) * d(row_bytes(a.window.format, a.head_dim)) +
                       d(a.n_main) * d(row_bytes(a.main.format, a.head_dim));
  return {StepPart::kAttention, d(a.rows) * bytes,
          2 * d(a.rows) * d(a.n_heads) * d(a.head_dim) * d(a.n_window + a.n_main)};
}
Cost cost_of(const ModelConfig&, const CompressorPoolArgs& a) {
  const double n = d(a.groups) * d(a.ratio) * d(a.dim);
  return {StepPart::kAttention, 8 * n, n};
}
Cost cost_of(const ModelConfig&, const IndexScoresArgs& a) {
  std::int64_t n = a.n_visible;
  if (a.kept != nullptr) {  // a pool: the other blocks are not read
    const std::int64_t blocks = (n + a.block_size - 1) / a.block_size;
    n = std::min(n, std::count(a.kept, a.kept + blocks, 1) * a.block_size);
  }
  return {StepPart::kIndexer, d(n) * d(row_bytes(a.keys.format, a.dim)),
          d(n) * d(a.n_heads) * d(a.dim)};
}
Cost cost_of(const ModelConfig&, const TopKArgs& a) { return {StepPart::kIndexer, 4 * d(a.n)}; }
Cost cost_of(const ModelConfig&, const CandidateBlocksArgs& a) {
  return {StepPart::kIndexer, 4 * d(a.n)};
}
Cost cost_of(const ModelConfig&, const RouteArgs& a) {
  return {StepPart::kRouter, 4 * d(a.rows) * d(a.n_experts)};
}
Cost cost_of(const ModelConfig&, const SwigluArgs& a) {
  return {a.weights == nullptr ? StepPart::kDense : StepPart::kExperts, 8 * d(a.rows) * d(a.dim),
          4 * d(a.rows) * d(a.dim)};
}
Cost cost_of(const ModelConfig&, const EngramHashArgs&) { return {StepPart::kEngram}; }
Cost cost_of(const ModelConfig&, const EngramGatherArgs& a) {
  return {StepPart::kEngram, d(a.rows) * d(a.n_columns) * d(a.table.cols) * 33 / 32};
}
Cost cost_of(const ModelConfig&, const EngramUpdateArgs& a) {
  const double n = d(a.rows) * d(a.dim);
  return {StepPart::kEngram, 4 * n * d(2 * a.n_streams + 1), 4 * n * d(a.n_streams)};
}

template <auto kSlot, class Args>
void counting(Context& run, const Args& args) {
  StepProfile& profile = StepProfile::active();
  const Clock::time_point start = Clock::now();
  (profile.inner().*kSlot)(run, args);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const Cost cost = cost_of(profile.config(), args);
  profile.add(cost.part, {seconds, cost.bytes, cost.multiply_adds, 1});
}

template <auto kSlot, class Args>
void count_calls(KernelTable& table, void (*KernelTable::*)(Context&, const Args&)) {
  table.*kSlot = counting<kSlot, Args>;
}

template <auto... kSlots>
void count_calls_of(KernelTable& table) {
  (count_calls<kSlots>(table, kSlots), ...);
}

}  // namespace

const char* step_part_name(StepPart part) {
  constexpr const char* kNames[] = {"experts", "dense",  "attention", "indexer",
                                    "streams", "router", "engram",    "head"};
  return kNames[static_cast<std::size_t>(part)];
}

StepProfile* StepProfile::active_ = nullptr;

StepProfile::StepProfile(const KernelTable& kernels, const ModelConfig& config)
    : inner_(kernels), counting_(kernels), config_(config) {
  active_ = this;
  using T = KernelTable;
  count_calls_of<&T::matmul_fp8_q8, &T::matmul_fp4_q8, &T::matmul_fp8, &T::matmul_fp4,
                 &T::matmul_bf16, &T::matmul_f32, &T::rms_norm, &T::rope, &T::hc_mix,
                 &T::hc_collapse, &T::hc_expand, &T::hc_pass, &T::quantise_q8, &T::sparse_attention,
                 &T::compressor_pool, &T::index_scores, &T::top_k, &T::candidate_blocks, &T::route,
                 &T::swiglu, &T::engram_hash, &T::engram_gather, &T::engram_update>(counting_);
}

StepProfile::~StepProfile() { active_ = nullptr; }

void StepProfile::add(StepPart part, const PartCost& cost) {
  PartCost& sum = parts_[static_cast<std::size_t>(part)];
  sum.seconds += cost.seconds;
  sum.bytes += cost.bytes;
  sum.multiply_adds += cost.multiply_adds;
  sum.n_calls += cost.n_calls;
}

PartCost StepProfile::total() const {
  PartCost total;
  for (const PartCost& part : parts_) {
    total.seconds += part.seconds;
    total.bytes += part.bytes;
    total.multiply_adds += part.multiply_adds;
    total.n_calls += part.n_calls;
  }
  return total;
}

}  // namespace cairn::engine
