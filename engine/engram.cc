#include "engine/engram.h"

#include "engine/linear.h"
#include "engine/sizes.h"

namespace cairn::engine {
std::vector<std::int64_t> engram_row_ids(const LayerContext& ctx, const EngramTables& tables,
                                         const std::vector<std::int32_t>& classes,
                                         std::int64_t first, std::int64_t rows) {
  const EngramTables::Layer& layer = tables.layers[usize(ctx.plan.engram_slot)];
  std::vector<std::int64_t> ids(usize(rows * ctx.config.engram_columns()));
  ctx.k.engram_hash(ctx.run, {.classes = classes.data(),
                              .first = first,
                              .rows = rows,
                              .pad_class = tables.pad_class,
                              .max_ngram = ctx.config.engram_max_ngram,
                              .n_heads = ctx.config.engram_n_heads,
                              .multipliers = layer.multipliers.data(),
                              .primes = layer.primes.data(),
                              .offsets = layer.offsets.data(),
                              .ids = ids.data()});
  return ids;
}

std::vector<std::int64_t> engram_row_ids(const LayerContext& ctx, const Chunk& chunk,
                                         std::int64_t from) {
  std::vector<std::int64_t> ids;
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n) {
    const std::vector<std::int64_t> more =
        engram_row_ids(ctx, *chunk.engram, *part.classes, part.first + row - part.row, n);
    ids.insert(ids.end(), more.begin(), more.end());
  });
  return ids;
}

std::vector<float> engram_rows(const LayerContext& ctx, const EngramWeights& w,
                               const std::vector<std::int64_t>& ids) {
  const std::int64_t columns = ctx.config.engram_columns();
  const std::int64_t rows = static_cast<std::int64_t>(ids.size()) / columns;
  std::vector<float> out(usize(rows * columns * w.table.cols));
  ctx.k.engram_gather(ctx.run, {.table = w.table,
                                .ids = ids.data(),
                                .rows = rows,
                                .n_columns = columns,
                                .out = out.data(),
                                .round_bf16 = ctx.arithmetic.round_bf16});
  return out;
}

std::vector<float> engram_kv(const LayerContext& ctx, const EngramWeights& w,
                             const std::vector<float>& rows_concatenated) {
  const std::int64_t rows = static_cast<std::int64_t>(rows_concatenated.size()) / w.wkv.cols;
  std::vector<float> kv(usize(rows * w.wkv.rows));
  linear(ctx, LinearInput(ctx, rows_concatenated.data(), rows, w.wkv.cols), w.wkv, kv.data());
  return kv;
}

std::vector<float> engram_update(const LayerContext& ctx, const EngramWeights& w,
                                 const std::vector<float>& kv, float* h) {
  const std::int64_t rows = static_cast<std::int64_t>(kv.size()) / w.wkv.rows;
  std::vector<float> gates(usize(rows * ctx.config.hc_mult));
  ctx.k.engram_update(ctx.run, {.kv = kv.data(),
                                .rows = rows,
                                .n_streams = ctx.config.hc_mult,
                                .dim = ctx.config.dim,
                                .q_weight = w.q_weight.data,
                                .k_weight = w.k_weight.data,
                                .eps = ctx.config.norm_eps,
                                .h = h,
                                .gate = gates.data(),
                                .round_bf16 = ctx.arithmetic.round_bf16});
  return gates;
}

}  // namespace cairn::engine
