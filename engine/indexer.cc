#include "engine/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/row_steps.h"
#include "engine/sizes.h"
#include "kernels/number_formats.h"

namespace cairn::engine {
namespace {

bool pool_can_restrict(const ModelConfig& config, std::int64_t n_visible) {
  return n_visible > std::int64_t{config.candidate_top_blocks} * config.candidate_block_size;
}

}  // namespace

StepVector<float> index_queries(const LayerContext& ctx, const IndexerWeights& w,
                                const LinearInput& qr, std::span<const std::int64_t> positions) {
  StepVector<float> q = ctx.scratch<float>(qr.rows() * w.wq_b.rows);
  linear(ctx, qr, w.wq_b, q.data());
  rotate_rows(ctx, q, ctx.config.index_n_heads, ctx.config.index_head_dim, positions);
  return q;
}

StepVector<std::byte> pack_index_queries(const LayerContext& ctx, std::span<const float> q) {
  const kernels::RowFormat format = ctx.arithmetic.index_format;
  const std::size_t dim = usize(ctx.config.index_head_dim);
  const std::size_t bytes = usize(kernels::row_bytes(format, ctx.config.index_head_dim));
  StepVector<std::byte> rows(q.size() / dim * bytes, &ctx.memory);
  for (std::size_t i = 0; i < q.size() / dim; ++i) {
    ctx.k.encode_row(format, q.data() + i * dim, ctx.config.index_head_dim,
                     rows.data() + i * bytes);
  }
  return rows;
}

StepVector<float> index_head_weights(const LayerContext& ctx, const IndexerWeights& w,
                                     const float* x, std::int64_t rows) {
  StepVector<float> weights = ctx.scratch<float>(rows * ctx.config.index_n_heads);
  linear(ctx, x, rows, w.weights_proj, weights.data(), /*rounded=*/true);
  return weights;
}

void scale_head_weights(const LayerContext& ctx, std::span<float> weights) {
  const auto factor =
      static_cast<float>(std::pow(static_cast<double>(ctx.config.index_head_dim), -0.5) *
                         std::pow(static_cast<double>(ctx.config.index_n_heads), -0.5));
  for (float& weight : weights) {
    weight *= factor;
    if (ctx.arithmetic.round_bf16) weight = kernels::round_to_bf16(weight);
  }
}

StepVector<float> index_scores(const LayerContext& ctx, const std::byte* q, const float* w,
                               const kernels::KvRows& keys, std::int64_t n_visible,
                               std::span<const std::uint8_t> pool) {
  StepVector<float> scores = ctx.scratch<float>(n_visible);
  ctx.k.index_scores(ctx.run, {.q = q,
                               .w = w,
                               .n_heads = ctx.config.index_n_heads,
                               .dim = ctx.config.index_head_dim,
                               .keys = keys,
                               .n_visible = n_visible,
                               .kept = pool.empty() ? nullptr : pool.data(),
                               .block_size = ctx.config.candidate_block_size,
                               .scores = scores.data(),
                               .round_bf16 = ctx.arithmetic.round_bf16});
  return scores;
}

void candidate_pool(const LayerContext& ctx, std::span<const float> scores,
                    std::vector<std::uint8_t>& kept) {
  kept.clear();
  const auto n = static_cast<std::int64_t>(scores.size());
  if (!pool_can_restrict(ctx.config, n)) return;
  const std::int64_t block_size = ctx.config.candidate_block_size;
  const std::size_t n_blocks = usize((n + block_size - 1) / block_size);
  if (kept.capacity() < n_blocks) kept.reserve(2 * n_blocks);  // contexts grow a token at a time
  kept.resize(n_blocks);
  ctx.k.candidate_blocks(ctx.run, {.scores = scores.data(),
                                   .n = n,
                                   .block_size = block_size,
                                   .top_blocks = ctx.config.candidate_top_blocks,
                                   .kept = kept.data()});
}

void select_entries(const LayerContext& ctx, std::span<const float> scores, std::int32_t* out) {
  ctx.k.top_k(ctx.run, {.scores = scores.data(),
                        .n = static_cast<std::int64_t>(scores.size()),
                        .k = ctx.config.index_top_k,
                        .out = out});
}

void run_indexer(const LayerContext& ctx, const IndexerWeights& w, const LinearInput& qr,
                 const float* x, std::span<const std::int64_t> positions,
                 std::span<const kernels::KvRows> keys, std::int32_t* top_k,
                 std::vector<std::uint8_t>* kept_blocks) {
  const ModelConfig& config = ctx.config;
  const std::int64_t rows = qr.rows(), k = config.index_top_k;
  const StepVector<std::byte> q = pack_index_queries(ctx, index_queries(ctx, w, qr, positions));
  const std::int64_t query_bytes =
      static_cast<std::int64_t>(q.size()) / std::max<std::int64_t>(rows, 1);
  StepVector<float> weights = index_head_weights(ctx, w, x, rows);
  scale_head_weights(ctx, weights);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t n = visible_entries(positions[usize(row)], ctx.plan.ratio);
    std::int32_t* list = top_k + row * k;
    std::vector<std::uint8_t>& kept = kept_blocks[row];
    if (ctx.plan.writes_candidates) kept.clear();
    const bool pool_matters = (ctx.plan.writes_candidates && pool_can_restrict(config, n)) ||
                              (ctx.plan.uses_candidates && !kept.empty());
    if (n <= k && !pool_matters) {  // everything visible is chosen whatever the scores
      std::iota(list, list + n, 0);
      std::fill(list + n, list + k, -1);
      continue;
    }
    const StepMemory::Scope scope(ctx.memory);
    const std::span<const std::uint8_t> everything;
    const StepVector<float> scores =
        index_scores(ctx, q.data() + row * query_bytes, weights.data() + row * config.index_n_heads,
                     keys[usize(row)], n,
                     ctx.plan.uses_candidates ? std::span<const std::uint8_t>(kept) : everything);
    if (ctx.plan.writes_candidates) candidate_pool(ctx, scores, kept);
    select_entries(ctx, scores, list);
  }
}

}  // namespace cairn::engine
