// Attention over a sliding window and the selected compressed entries. A part's window rows are
// laid out behind the ring's rows they can see, so its queries read one table whatever the ring
// holds by then.
#include "engine/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/compressor.h"
#include "engine/indexer.h"
#include "engine/row_steps.h"
#include "engine/sizes.h"

namespace cairn::engine {
namespace {

// A contiguous run of window rows of one sequence and layer: row i is position first + i.
struct WindowTable {
  std::int64_t first = 0;
  std::size_t begin = 0;  // bytes into a.window_rows
};

// Ring rows that queries of the part can see, then the part's own rows, in a.window_rows; and the
// part's rows into the ring. kv: [n, head_dim] of positions from, from+1, ...
WindowTable extend_window(const LayerContext& ctx, int layer, bool reset, std::int64_t from,
                          std::int64_t n, const float* kv, Activations& a, KvCache& cache) {
  WindowRing& ring = cache.window(layer);
  if (reset || ring.end != from) ring.begin = ring.end = from;
  const std::int64_t row_bytes = cache.window_row_bytes(), window = ctx.config.window;
  const std::int64_t first = std::max(ring.begin, from - (window - 1));
  const std::size_t begin = a.window_rows.size();
  a.window_rows.resize(begin + usize((from + n - first) * row_bytes));
  std::byte* out = a.window_rows.data() + begin;
  for (std::int64_t p = first; p < from; ++p, out += row_bytes) {
    std::memcpy(out, ring.rows.data() + p % window * row_bytes, usize(row_bytes));
  }
  const std::byte* new_rows = out;
  for (std::int64_t i = 0; i < n; ++i, out += row_bytes) {
    ctx.k.encode_row(ctx.arithmetic.window_format, kv + i * ctx.config.head_dim,
                     ctx.config.head_dim, out);
  }
  cache.write_window(layer, from, n, new_rows);
  return {first, begin};
}

// A table for each part of the chunk; where the part has no rows from `from` on it is not read.
StepVector<WindowTable> extend_windows(const LayerContext& ctx, const AttentionWeights& w,
                                       int layer, const ActiveRows& rows, const Chunk& chunk,
                                       Activations& a) {
  const std::int64_t from = rows.window_from, dim = ctx.config.dim;
  const LinearInput x(ctx, a.normed.data() + from * dim, chunk.n - from, dim);
  const StepVector<float> kv = window_kv(ctx, w, x, positions_of(ctx, chunk, from));
  StepVector<WindowTable> tables(chunk.parts.size(), &ctx.memory);
  a.window_rows.clear();
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n) {
    tables[usize(&part - chunk.parts.data())] =
        extend_window(ctx, layer, rows.reset_window, part.first + row - part.row, n,
                      kv.data() + (row - from) * ctx.config.head_dim, a, *part.cache);
  });
  return tables;
}

// Places of the window in each query's list: visible positions ascending, then empty ones.
StepVector<std::int32_t> window_slots(const LayerContext& ctx, const WindowTable& table,
                                      std::int64_t first_query, std::int64_t rows) {
  const std::int64_t window = ctx.config.window;
  StepVector<std::int32_t> slots(usize(rows * window), -1, &ctx.memory);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t position = first_query + row;
    std::int32_t* slot = slots.data() + row * window;
    for (std::int64_t p = std::max(table.first, position - (window - 1)); p <= position; ++p) {
      *slot++ = static_cast<std::int32_t>(p - table.first);
    }
  }
  return slots;
}

// The index keys that each query searches: those of its sequence.
StepVector<kernels::KvRows> index_rows_of(const LayerContext& ctx, const Chunk& chunk,
                                          std::int64_t from) {
  StepVector<kernels::KvRows> keys(&ctx.memory);
  keys.reserve(usize(chunk.n - from));
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t, std::int64_t n) {
    keys.insert(keys.end(), usize(n),
                part.cache->index_rows(part.cache->source(ctx.plan.kv_source)));
  });
  return keys;
}

}  // namespace

StepVector<float> low_rank_queries(const LayerContext& ctx, const AttentionWeights& w,
                                   const LinearInput& x) {
  StepVector<float> qr = ctx.scratch<float>(x.rows() * w.wq_a.rows);
  linear(ctx, x, w.wq_a, qr.data());
  norm_rows(ctx, w.q_norm, qr);
  return qr;
}

StepVector<float> head_queries(const LayerContext& ctx, const AttentionWeights& w,
                               const LinearInput& qr, std::span<const std::int64_t> positions) {
  StepVector<float> q = ctx.scratch<float>(qr.rows() * w.wq_b.rows);
  linear(ctx, qr, w.wq_b, q.data());
  rotate_rows(ctx, q, ctx.config.n_heads, ctx.config.head_dim, positions);
  return q;
}

StepVector<float> window_kv(const LayerContext& ctx, const AttentionWeights& w,
                            const LinearInput& x, std::span<const std::int64_t> positions) {
  const std::int64_t dim = ctx.config.head_dim;
  StepVector<float> kv = ctx.scratch<float>(x.rows() * dim);
  linear(ctx, x, w.wkv, kv.data());
  norm_rows(ctx, w.kv_norm, kv);
  rotate_rows(ctx, kv, 1, dim, positions);
  return kv;
}

void attend(const LayerContext& ctx, const AttentionWeights& w, const float* q, std::int64_t rows,
            const std::byte* window, const std::int32_t* window_slots, const kernels::KvRows& main,
            const std::int32_t* main_rows, float* out) {
  const ModelConfig& config = ctx.config;
  ctx.k.sparse_attention(
      ctx.run, {.q = q,
                .rows = rows,
                .n_heads = config.n_heads,
                .head_dim = config.head_dim,
                .window = {&window, ctx.arithmetic.window_format},
                .window_slots = window_slots,
                .n_window = config.window,
                .main = main,
                .main_rows = main_rows,
                .n_main = ctx.plan.ratio > 0 ? config.index_top_k : 0,
                .sink = w.sink.data,
                .scale = static_cast<float>(std::pow(static_cast<double>(config.head_dim), -0.5)),
                .out = out,
                .round_bf16 = ctx.arithmetic.round_bf16});
}

void attention_output(const LayerContext& ctx, const AttentionWeights& w, std::span<float> o,
                      std::span<const std::int64_t> positions, float* y) {
  const ModelConfig& config = ctx.config;
  const auto rows = static_cast<std::int64_t>(positions.size());
  rotate_rows(ctx, o, config.n_heads, config.head_dim, positions, Rotation::kInverse);
  const std::int64_t width = std::int64_t{config.n_heads} * config.head_dim;
  const std::int64_t group_in = width / config.o_groups, group_out = config.o_rank;
  StepVector<float> u = ctx.scratch<float>(rows * config.o_groups * group_out);
  for (std::int64_t g = 0; g < config.o_groups; ++g) {
    // A group's rows of wo_a. Its input is not quantised in any arithmetic.
    const kernels::Fp8View wo_a{w.wo_a.codes + g * group_out * group_in,
                                w.wo_a.scales + g * group_out / 32 * (group_in / 32), group_out,
                                group_in};
    ctx.k.matmul_fp8(ctx.run, {.x = o.data() + g * group_in,
                               .rows = rows,
                               .x_stride = width,
                               .w = wo_a,
                               .out = {u.data() + g * group_out, config.o_groups * group_out,
                                       ctx.arithmetic.round_bf16}});
  }
  linear(ctx, LinearInput(ctx, u.data(), rows, config.o_groups * group_out), w.wo_b, y);
}

void attention(const LayerContext& ctx, const AttentionWeights& w, int layer,
               const ActiveRows& rows, const Chunk& chunk, Activations& a) {
  const ModelConfig& config = ctx.config;
  const auto normed_at = [&](std::int64_t row) { return a.normed.data() + row * config.dim; };

  if (ctx.plan.mode == LayerMode::kFull) {
    append_global(ctx, w, layer, rows.global_from, chunk, normed_at(rows.global_from));
  }
  if (rows.window_from >= chunk.n) return;
  const StepVector<WindowTable> windows = extend_windows(ctx, w, layer, rows, chunk, a);

  const std::int64_t from = rows.output_from, n_queries = chunk.n - from;
  if (n_queries <= 0) return;
  const StepVector<std::int64_t> positions = positions_of(ctx, chunk, from);
  const LinearInput x(ctx, normed_at(from), n_queries, config.dim);
  const StepVector<float> qr_values = low_rank_queries(ctx, w, x);
  const LinearInput qr(ctx, qr_values.data(), n_queries, config.q_rank);
  const StepVector<float> q = head_queries(ctx, w, qr, positions);

  if (ctx.plan.mode == LayerMode::kFull || ctx.plan.mode == LayerMode::kReindex) {
    run_indexer(ctx, w.indexer, qr, x.x(), positions, index_rows_of(ctx, chunk, from),
                a.top_k.data() + from * config.index_top_k, a.kept_blocks.data() + from);
  }

  StepVector<float> o(q.size(), &ctx.memory);
  const std::int64_t width = std::int64_t{config.n_heads} * config.head_dim;
  for_each_part(chunk, from, [&](const ChunkPart& part, std::int64_t row, std::int64_t n) {
    const WindowTable& window = windows[usize(&part - chunk.parts.data())];
    const StepVector<std::int32_t> slots =
        window_slots(ctx, window, part.first + row - part.row, n);
    const kernels::KvRows main = ctx.plan.ratio > 0
                                     ? part.cache->main_rows(part.cache->source(ctx.plan.kv_source))
                                     : kernels::KvRows{};
    attend(ctx, w, q.data() + (row - from) * width, n, a.window_rows.data() + window.begin,
           slots.data(), main, a.top_k.data() + row * config.index_top_k,
           o.data() + (row - from) * width);
  });
  attention_output(ctx, w, o, positions, a.sublayer_out.data() + from * config.dim);
}

void draft_attention(const LayerContext& ctx, const AttentionWeights& w, const DraftBlock& block,
                     Activations& a) {
  const ModelConfig& config = ctx.config;
  StepVector<std::int64_t> positions(usize(block.n), &ctx.memory);
  std::iota(positions.begin(), positions.end(), block.first);
  const LinearInput x(ctx, a.normed.data(), block.n, config.dim);
  const StepVector<float> kv = window_kv(ctx, w, x, positions);

  // The ring's rows in the order of their positions, then the block's.
  const WindowRing& ring = block.ring;
  const std::int64_t row_bytes = kernels::row_bytes(ctx.arithmetic.window_format, config.head_dim);
  const std::int64_t n_slots = static_cast<std::int64_t>(ring.rows.size()) / row_bytes;
  const std::int64_t n_context = ring.end == block.first ? ring.end - ring.begin : 0;
  a.window_rows.resize(usize((n_context + block.n) * row_bytes));
  std::byte* out = a.window_rows.data();
  for (std::int64_t p = block.first - n_context; p < block.first; ++p, out += row_bytes) {
    std::memcpy(out, ring.rows.data() + p % n_slots * row_bytes, usize(row_bytes));
  }
  for (std::int64_t i = 0; i < block.n; ++i, out += row_bytes) {
    ctx.k.encode_row(ctx.arithmetic.window_format, kv.data() + i * config.head_dim, config.head_dim,
                     out);
  }
  StepVector<std::int32_t> slots(usize(block.n * config.window), -1, &ctx.memory);
  for (std::int64_t i = 0; i < block.n; ++i) {
    const auto of_row = slots.begin() + static_cast<std::ptrdiff_t>(i * config.window);
    std::iota(of_row, of_row + static_cast<std::ptrdiff_t>(n_context + block.n), 0);
  }

  const StepVector<float> qr_values = low_rank_queries(ctx, w, x);
  const LinearInput qr(ctx, qr_values.data(), block.n, config.q_rank);
  const StepVector<float> q = head_queries(ctx, w, qr, positions);
  StepVector<float> o(q.size(), &ctx.memory);
  attend(ctx, w, q.data(), block.n, a.window_rows.data(), slots.data(), {}, nullptr, o.data());
  attention_output(ctx, w, o, positions, a.sublayer_out.data());
}

}  // namespace cairn::engine
