// Attention over a sliding window and the selected compressed entries. A chunk's window rows are
// laid out behind the ring's rows they can see, so queries of a chunk read one table and the ring
// is written after they are done.
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

std::vector<std::int64_t> positions_from(std::int64_t first, std::int64_t n) {
  std::vector<std::int64_t> positions(usize(n));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// A contiguous run of window rows of one layer: row i is position first + i.
struct WindowTable {
  std::int64_t first = 0;
  const std::byte* rows = nullptr;
};

// Ring rows that queries of the chunk can see, then the chunk's own rows, in a.window_rows; and the
// chunk's rows into the ring.
WindowTable extend_window(const LayerContext& ctx, const AttentionWeights& w, int layer,
                          const LayerRows& plan, std::int64_t from, std::int64_t n, const float* x,
                          Activations& a, KvCache& cache) {
  WindowRing& ring = cache.window(layer);
  if (plan.reset_window && from == plan.window_from) ring.begin = ring.end = from;
  if (ring.end != from) ring.begin = ring.end = from;
  const std::int64_t row_bytes = cache.window_row_bytes(), window = ctx.config.window;
  const std::int64_t first = std::max(ring.begin, from - (window - 1));
  a.window_rows.resize(usize((from + n - first) * row_bytes));
  std::byte* out = a.window_rows.data();
  for (std::int64_t p = first; p < from; ++p, out += row_bytes) {
    std::memcpy(out, ring.rows.data() + p % window * row_bytes, usize(row_bytes));
  }
  const std::byte* chunk_rows = out;
  const std::vector<float> kv =
      window_kv(ctx, w, LinearInput(ctx, x, n, ctx.config.dim), positions_from(from, n));
  for (std::int64_t i = 0; i < n; ++i, out += row_bytes) {
    kernels::encode_row(ctx.arithmetic.window_format, kv.data() + i * ctx.config.head_dim,
                        ctx.config.head_dim, out);
  }
  cache.write_window(layer, from, n, chunk_rows);
  return {first, a.window_rows.data()};
}

// Places of the window in each query's list: visible positions ascending, then empty ones.
std::vector<std::int32_t> window_slots(const WindowTable& table, std::int64_t window,
                                       std::int64_t first_query, std::int64_t rows) {
  std::vector<std::int32_t> slots(usize(rows * window), -1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t position = first_query + row;
    std::int32_t* slot = slots.data() + row * window;
    for (std::int64_t p = std::max(table.first, position - (window - 1)); p <= position; ++p) {
      *slot++ = static_cast<std::int32_t>(p - table.first);
    }
  }
  return slots;
}

}  // namespace

std::vector<float> low_rank_queries(const LayerContext& ctx, const AttentionWeights& w,
                                    const LinearInput& x) {
  std::vector<float> qr(usize(x.rows() * w.wq_a.rows));
  linear(ctx, x, w.wq_a, qr.data());
  norm_rows(ctx, w.q_norm, qr);
  return qr;
}

std::vector<float> head_queries(const LayerContext& ctx, const AttentionWeights& w,
                                const LinearInput& qr, const std::vector<std::int64_t>& positions) {
  std::vector<float> q(usize(qr.rows() * w.wq_b.rows));
  linear(ctx, qr, w.wq_b, q.data());
  rotate_rows(ctx, q, ctx.config.n_heads, ctx.config.head_dim, positions);
  return q;
}

std::vector<float> window_kv(const LayerContext& ctx, const AttentionWeights& w,
                             const LinearInput& x, const std::vector<std::int64_t>& positions) {
  const std::int64_t dim = ctx.config.head_dim;
  std::vector<float> kv(usize(x.rows() * dim));
  linear(ctx, x, w.wkv, kv.data());
  norm_rows(ctx, w.kv_norm, kv);
  rotate_rows(ctx, kv, 1, dim, positions);
  return kv;
}

std::vector<float> attend(const LayerContext& ctx, const AttentionWeights& w,
                          const std::vector<float>& q, std::int64_t rows, const std::byte* window,
                          const std::int32_t* window_slots, const kernels::KvRows& main,
                          const std::int32_t* main_rows) {
  const ModelConfig& config = ctx.config;
  std::vector<float> o(q.size());
  ctx.k.sparse_attention(
      ctx.run, {.q = q.data(),
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
                .out = o.data(),
                .round_bf16 = ctx.arithmetic.round_bf16});
  return o;
}

void attention_output(const LayerContext& ctx, const AttentionWeights& w, std::vector<float>& o,
                      const std::vector<std::int64_t>& positions, float* y) {
  const ModelConfig& config = ctx.config;
  const auto rows = static_cast<std::int64_t>(positions.size());
  rotate_rows(ctx, o, config.n_heads, config.head_dim, positions, Rotation::kInverse);
  const std::int64_t width = std::int64_t{config.n_heads} * config.head_dim;
  const std::int64_t group_in = width / config.o_groups, group_out = config.o_rank;
  std::vector<float> u(usize(rows * config.o_groups * group_out));
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

void attention(const LayerContext& ctx, const AttentionWeights& w, int layer, const LayerRows& rows,
               std::int64_t first, std::int64_t n, Activations& a, KvCache& cache) {
  const ModelConfig& config = ctx.config;
  const std::int64_t end = first + n;
  const auto normed_at = [&](std::int64_t p) { return a.normed.data() + (p - first) * config.dim; };

  if (ctx.plan.mode == LayerMode::kFull) {
    const std::int64_t from = std::max(first, rows.global_from);
    if (from < end) {
      append_global(ctx, w, normed_at(from), end - from, cache.source(layer), cache);
    }
  }
  const std::int64_t window_from = std::max(first, rows.window_from);
  if (window_from >= end) return;
  const WindowTable window = extend_window(ctx, w, layer, rows, window_from, end - window_from,
                                           normed_at(window_from), a, cache);

  const std::int64_t from = std::max(first, rows.output_from), n_queries = end - from;
  if (n_queries <= 0) return;
  const std::vector<std::int64_t> positions = positions_from(from, n_queries);
  const LinearInput x(ctx, normed_at(from), n_queries, config.dim);
  const std::vector<float> qr_values = low_rank_queries(ctx, w, x);
  const LinearInput qr(ctx, qr_values.data(), n_queries, config.q_rank);
  const std::vector<float> q = head_queries(ctx, w, qr, positions);

  const std::int64_t row = from - first;
  std::int32_t* top_k = a.top_k.data() + row * config.index_top_k;
  const GlobalKv* kv = ctx.plan.ratio > 0 ? &cache.source(ctx.plan.kv_source) : nullptr;
  if (ctx.plan.mode == LayerMode::kFull || ctx.plan.mode == LayerMode::kReindex) {
    run_indexer(ctx, w.indexer, qr, x.x(), positions, cache.index_rows(*kv), top_k,
                a.kept_blocks.data() + row);
  }

  const std::vector<std::int32_t> slots = window_slots(window, config.window, from, n_queries);
  std::vector<float> o = attend(ctx, w, q, n_queries, window.rows, slots.data(),
                                kv ? cache.main_rows(*kv) : kernels::KvRows{}, top_k);
  attention_output(ctx, w, o, positions, a.sublayer_out.data() + row * config.dim);
}

}  // namespace cairn::engine
