#include "engine/compressor.h"

#include <algorithm>
#include <utility>

#include "engine/linear.h"
#include "engine/row_steps.h"
#include "engine/sizes.h"

namespace cairn::engine {
namespace {

// Entries that a chunk completes, part after part: [n, head_dim] and the positions of their first
// tokens.
struct Latents {
  StepVector<float> values;
  StepVector<std::int64_t> positions;
};

Latents ungrouped_latents(const LayerContext& ctx, const CompressorWeights& w, std::int64_t from,
                          const Chunk& chunk, const float* x) {
  return {latents_of_rows(ctx, w, x, chunk.n - from), positions_of(ctx, chunk, from)};
}

// Groups begin with what their part kept; what is unfinished is kept again.
Latents grouped_latents(const LayerContext& ctx, const CompressorWeights& w, int layer,
                        std::int64_t from, const Chunk& chunk, const float* x) {
  const std::int64_t ratio = ctx.plan.ratio, dim = ctx.config.head_dim, rows = chunk.n - from;
  StepVector<float> values = ctx.scratch<float>(rows * dim), gates = ctx.scratch<float>(rows * dim);
  project_group_rows(ctx, w, x, rows, values.data(), gates.data());
  const auto n_parts = static_cast<std::int64_t>(chunk.parts.size());
  const std::int64_t most = rows + n_parts * (ratio - 1);
  StepVector<float> of_groups = ctx.scratch<float>(most * dim);
  StepVector<float> gates_of_groups = ctx.scratch<float>(most * dim);
  StepVector<std::int64_t> positions(&ctx.memory);
  positions.reserve(usize(most / ratio + 1));
  std::int64_t n_used = 0;  // rows in complete groups
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n) {
    GlobalKv& kv = part.cache->source(layer);
    const std::int64_t pending = kv.carry_count, total = pending + n;
    const std::int64_t groups = total / ratio, rest = total - groups * ratio;
    const auto join = [&](const StepVector<float>& fresh, std::vector<float>& carry,
                          StepVector<float>& joined) {
      float* const out = joined.data() + n_used * dim;
      std::copy_n(carry.data(), pending * dim, out);
      std::copy_n(fresh.data() + (row - from) * dim, n * dim, out + pending * dim);
      std::copy_n(out + groups * ratio * dim, rest * dim, carry.data());
    };
    join(values, kv.carry_values, of_groups);
    join(gates, kv.carry_gates, gates_of_groups);
    part.cache->keep_group_rows(kv, n, values.data() + (row - from) * dim,
                                gates.data() + (row - from) * dim);
    kv.carry_count = rest;
    for (std::int64_t i = 0; i < groups; ++i) positions.push_back((kv.n_entries + i) * ratio);
    n_used += groups * ratio;
  });
  return {latents_of_groups(ctx, w, of_groups.data(), gates_of_groups.data(), n_used / ratio),
          std::move(positions)};
}

}  // namespace

StepVector<float> latents_of_rows(const LayerContext& ctx, const CompressorWeights& w,
                                  const float* x, std::int64_t rows) {
  StepVector<float> latents = ctx.scratch<float>(rows * ctx.config.head_dim);
  linear(ctx, x, rows, w.wkv, latents.data(), /*rounded=*/true);
  norm_rows(ctx, w.norm, latents);
  return latents;
}

void project_group_rows(const LayerContext& ctx, const CompressorWeights& w, const float* x,
                        std::int64_t rows, float* values, float* gates) {
  linear(ctx, x, rows, w.wkv, values, /*rounded=*/false);
  linear(ctx, x, rows, w.wgate, gates, /*rounded=*/false);
}

StepVector<float> latents_of_groups(const LayerContext& ctx, const CompressorWeights& w,
                                    const float* values, const float* gates, std::int64_t groups) {
  StepVector<float> latents = ctx.scratch<float>(groups * ctx.config.head_dim);
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

StepVector<float> main_kv(const LayerContext& ctx, std::span<const float> latents,
                          std::span<const std::int64_t> positions) {
  StepVector<float> rotated(latents.begin(), latents.end(), &ctx.memory);
  rotate_rows(ctx, rotated, 1, ctx.config.head_dim, positions);
  return rotated;
}

StepVector<float> index_keys(const LayerContext& ctx, const IndexerWeights& w,
                             std::span<const float> latents,
                             std::span<const std::int64_t> positions) {
  const auto n = static_cast<std::int64_t>(positions.size());
  StepVector<float> keys = ctx.scratch<float>(n * ctx.config.index_head_dim);
  linear(ctx, latents.data(), n, w.wk, keys.data(), /*rounded=*/true);
  norm_rows(ctx, w.k_norm, keys);
  rotate_rows(ctx, keys, 1, ctx.config.index_head_dim, positions);
  return keys;
}

void append_global(const LayerContext& ctx, const AttentionWeights& w, int layer, std::int64_t from,
                   const Chunk& chunk, const float* x) {
  if (from >= chunk.n) return;
  const std::int64_t ratio = ctx.plan.ratio;
  const std::int64_t dim = ctx.config.head_dim, index_dim = ctx.config.index_head_dim;
  const Latents latents = ratio == 1 ? ungrouped_latents(ctx, w.compressor, from, chunk, x)
                                     : grouped_latents(ctx, w.compressor, layer, from, chunk, x);
  if (latents.positions.empty()) return;
  const StepVector<float> main = main_kv(ctx, latents.values, latents.positions);
  const StepVector<float> keys = index_keys(ctx, w.indexer, latents.values, latents.positions);
  std::int64_t i = 0;
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n) {
    GlobalKv& kv = part.cache->source(layer);
    const std::int64_t end = part.first + (row - part.row) + n;  // entries of the tokens before it
    while (kv.n_entries < end / ratio) {
      const KvCache::NewEntry entry = part.cache->append_entry(kv);
      ctx.k.encode_row(ctx.arithmetic.main_format, main.data() + i * dim, dim, entry.main);
      ctx.k.encode_row(ctx.arithmetic.index_format, keys.data() + i * index_dim, index_dim,
                       entry.index);
      ++i;
    }
  });
}

}  // namespace cairn::engine
