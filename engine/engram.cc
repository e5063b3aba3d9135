#include "engine/engram.h"

#include "engine/linear.h"
#include "engine/mapped_file.h"
#include "engine/sizes.h"

namespace cairn::engine {
StepVector<std::int64_t> engram_row_ids(const LayerContext& ctx, const EngramTables& tables,
                                        const std::vector<std::int32_t>& classes,
                                        std::int64_t first, std::int64_t rows) {
  const EngramTables::Layer& layer = tables.layers[usize(ctx.plan.engram_slot)];
  StepVector<std::int64_t> ids = ctx.scratch<std::int64_t>(rows * ctx.config.engram_columns());
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

StepVector<std::int64_t> engram_row_ids(const LayerContext& ctx, const Chunk& chunk,
                                        std::int64_t from) {
  StepVector<std::int64_t> ids(&ctx.memory);
  ids.reserve(usize((chunk.n - from) * ctx.config.engram_columns()));
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n) {
    const StepVector<std::int64_t> more =
        engram_row_ids(ctx, *chunk.engram, *part.classes, part.first + row - part.row, n);
    ids.insert(ids.end(), more.begin(), more.end());
  });
  return ids;
}

void prefetch_engram_rows(const LayerContext& ctx, const EngramWeights& w, const Chunk& chunk) {
  constexpr std::int64_t kStaysInMemory = std::int64_t{256} << 20;
  const std::int64_t cols = w.table.cols, scale_cols = cols / 32;
  if (w.table.rows * cols < kStaysInMemory) return;
  const StepMemory::Scope scope(ctx.memory);
  for (const std::int64_t id : engram_row_ids(ctx, chunk, 0)) {
    if (id < 0) continue;
    prefetch(std::as_bytes(std::span(w.table.codes + id * cols, usize(cols))));
    prefetch(std::as_bytes(std::span(w.table.scales + id * scale_cols, usize(scale_cols))));
  }
}

StepVector<float> engram_rows(const LayerContext& ctx, const EngramWeights& w,
                              std::span<const std::int64_t> ids) {
  const std::int64_t columns = ctx.config.engram_columns();
  const std::int64_t rows = static_cast<std::int64_t>(ids.size()) / columns;
  StepVector<float> out = ctx.scratch<float>(rows * columns * w.table.cols);
  ctx.k.engram_gather(ctx.run, {.table = w.table,
                                .ids = ids.data(),
                                .rows = rows,
                                .n_columns = columns,
                                .out = out.data(),
                                .round_bf16 = ctx.arithmetic.round_bf16});
  return out;
}

StepVector<float> engram_kv(const LayerContext& ctx, const EngramWeights& w,
                            std::span<const float> rows_concatenated) {
  const std::int64_t rows = static_cast<std::int64_t>(rows_concatenated.size()) / w.wkv.cols;
  StepVector<float> kv = ctx.scratch<float>(rows * w.wkv.rows);
  linear(ctx, LinearInput(ctx, rows_concatenated.data(), rows, w.wkv.cols), w.wkv, kv.data());
  return kv;
}

StepVector<float> engram_update(const LayerContext& ctx, const EngramWeights& w,
                                std::span<const float> kv, float* h) {
  const std::int64_t rows = static_cast<std::int64_t>(kv.size()) / w.wkv.rows;
  StepVector<float> gates = ctx.scratch<float>(rows * ctx.config.hc_mult);
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
