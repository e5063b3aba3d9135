#include "engine/compressor.h"

#include <algorithm>

#include "engine/linear.h"
#include "engine/row_steps.h"
#include "engine/sizes.h"

namespace cairn::engine {
namespace {

// Rotates entry first + i at the position of its group's first token.
void rotate_entries(const LayerContext& ctx, std::vector<float>& x, std::int64_t dim,
                    std::int64_t first) {
  std::vector<std::int64_t> positions(x.size() / usize(dim));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = (first + static_cast<std::int64_t>(i)) * ctx.plan.ratio;
  }
  rotate_rows(ctx, x, 1, dim, positions);
}

// Latents of the groups that the new rows complete, carrying the rest over.
std::vector<float> pool_groups(const LayerContext& ctx, const CompressorWeights& w, const float* x,
                               std::int64_t rows, GlobalKv& kv) {
  const std::int64_t ratio = kv.ratio, dim = ctx.config.head_dim;
  const std::int64_t pending = kv.carry_count, total = pending + rows;
  std::vector<float> values(usize(total * dim)), gates(values.size());
  std::copy_n(kv.carry_values.data(), pending * dim, values.data());
  std::copy_n(kv.carry_gates.data(), pending * dim, gates.data());
  project_group_rows(ctx, w, x, rows, values.data() + pending * dim, gates.data() + pending * dim);
  const std::int64_t groups = total / ratio, used = groups * ratio;
  kv.carry_count = total - used;
  std::copy_n(values.data() + used * dim, kv.carry_count * dim, kv.carry_values.data());
  std::copy_n(gates.data() + used * dim, kv.carry_count * dim, kv.carry_gates.data());
  return latents_of_groups(ctx, w, values.data(), gates.data(), groups);
}

}  // namespace

std::vector<float> latents_of_rows(const LayerContext& ctx, const CompressorWeights& w,
                                   const float* x, std::int64_t rows) {
  std::vector<float> latents(usize(rows * ctx.config.head_dim));
  linear(ctx, x, rows, w.wkv, latents.data(), /*rounded=*/true);
  norm_rows(ctx, w.norm, latents);
  return latents;
}

void project_group_rows(const LayerContext& ctx, const CompressorWeights& w, const float* x,
                        std::int64_t rows, float* values, float* gates) {
  linear(ctx, x, rows, w.wkv, values, /*rounded=*/false);
  linear(ctx, x, rows, w.wgate, gates, /*rounded=*/false);
}

std::vector<float> latents_of_groups(const LayerContext& ctx, const CompressorWeights& w,
                                     const float* values, const float* gates, std::int64_t groups) {
  std::vector<float> latents(usize(groups * ctx.config.head_dim));
  ctx.k.compressor_pool(ctx.run, {.values = values,
                                  .gates = gates,
                                  .groups = groups,
                                  .ratio = ctx.plan.ratio,
                                  .dim = ctx.config.head_dim,
                                  .out = latents.data(),
                                  .round_bf16 = ctx.arithmetic.round_bf16});
  norm_rows(ctx, w.norm, latents);
  return latents;
}

std::vector<float> main_kv(const LayerContext& ctx, const std::vector<float>& latents,
                           std::int64_t first) {
  std::vector<float> rotated = latents;
  rotate_entries(ctx, rotated, ctx.config.head_dim, first);
  return rotated;
}

std::vector<float> index_keys(const LayerContext& ctx, const IndexerWeights& w,
                              const std::vector<float>& latents, std::int64_t first) {
  const std::int64_t n = static_cast<std::int64_t>(latents.size()) / ctx.config.head_dim;
  std::vector<float> keys(usize(n * ctx.config.index_head_dim));
  linear(ctx, latents.data(), n, w.wk, keys.data(), /*rounded=*/true);
  norm_rows(ctx, w.k_norm, keys);
  rotate_entries(ctx, keys, ctx.config.index_head_dim, first);
  return keys;
}

void append_global(const LayerContext& ctx, const AttentionWeights& w, const float* x,
                   std::int64_t rows, GlobalKv& kv, KvCache& cache) {
  const std::int64_t dim = ctx.config.head_dim, index_dim = ctx.config.index_head_dim;
  const std::vector<float> latents = kv.ratio == 1 ? latents_of_rows(ctx, w.compressor, x, rows)
                                                   : pool_groups(ctx, w.compressor, x, rows, kv);
  const std::vector<float> main = main_kv(ctx, latents, kv.n_entries);
  const std::vector<float> keys = index_keys(ctx, w.indexer, latents, kv.n_entries);
  const std::int64_t n = static_cast<std::int64_t>(latents.size()) / dim;
  for (std::int64_t i = 0; i < n; ++i) {
    const KvCache::NewEntry entry = cache.append_entry(kv);
    ctx.k.encode_row(ctx.arithmetic.main_format, main.data() + i * dim, dim, entry.main);
    ctx.k.encode_row(ctx.arithmetic.index_format, keys.data() + i * index_dim, index_dim,
                     entry.index);
  }
}

}  // namespace cairn::engine
