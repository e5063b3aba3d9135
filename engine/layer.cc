// A layer is two sublayers, attention and mixture of experts, each between a collapse of the
// residual streams and an expansion back into them. The collapse weights come from the sublayer
// before: that shift is part of the model (spec/architecture.md section 5.4), and it lets
// expansion, collapse and the next coefficients be one pass over the streams.
#include "engine/layer.h"

#include <algorithm>

#include "engine/engram.h"
#include "engine/moe.h"

namespace cairn::engine {
namespace {

struct RowsOut {  // of `n` rows
  float* h;       // [n, hc, dim]
  std::int64_t n;
  float* collapsed;  // [n, dim]
  float* normed;     // [n, dim], the sublayer's input
};
struct SublayerOutput {  // y [n, dim] and how it enters the streams; null: nothing does
  const float* y = nullptr;
  const float* post = nullptr;
  const float* comb = nullptr;
};
struct Coefficients {
  float* pre;
  float* post;
  float* comb;
};

// From one sublayer to the next in one pass over the streams: the last output expanded, the next
// input collapsed by `pre` and normed, the next coefficients from `w`.
void enter_sublayer(const LayerContext& ctx, const SublayerOutput& last, const float* pre,
                    const Bf16View& norm, const HyperConnectionWeights& w, const RowsOut& rows,
                    const Coefficients& next) {
  ctx.k.hc_pass(ctx.run, {.expand = {.y = last.y,
                                     .post = last.post,
                                     .comb = last.comb,
                                     .rows = rows.n,
                                     .n_streams = ctx.config.hc_mult,
                                     .dim = ctx.config.dim,
                                     .h = rows.h,
                                     .round_bf16 = ctx.arithmetic.round_bf16},
                          .weights = pre,
                          .norm = norm.data,
                          .collapsed = rows.collapsed,
                          .normed = rows.normed,
                          .mix = {.fn = w.fn,
                                  .scale = w.scale.data,
                                  .base = w.base.data,
                                  .sinkhorn_iterations = ctx.config.hc_sinkhorn_iters,
                                  .eps = ctx.config.hc_eps,
                                  .norm_eps = ctx.config.norm_eps,
                                  .pre = next.pre,
                                  .post = next.post,
                                  .comb = next.comb}});
}

// The sublayers of a layer over the rows from `out_from` on, which leave it; attention, which reads
// a.normed from `read_from` on and fills a.sublayer_out, is `attend`.
template <class Attend>
void sublayers(const LayerContext& ctx, const LayerWeights& w, std::int64_t read_from,
               std::int64_t out_from, std::int64_t n_out, Activations& a, const Attend& attend) {
  const std::int64_t dim = ctx.config.dim, hc = ctx.config.hc_mult;
  const auto row = [&](std::vector<float>& v, std::int64_t t, std::int64_t width) {
    return v.data() + t * width;
  };
  float* post = row(a.post, out_from, hc);
  float* comb = row(a.comb, out_from, hc * hc);
  float* pre_attention = row(a.pre_attention, out_from, hc);
  float* pre_ffn = row(a.pre_ffn, out_from, hc);
  const RowsOut out{.h = row(a.h, out_from, hc * dim),
                    .n = n_out,
                    .collapsed = row(a.collapsed, out_from, dim),
                    .normed = row(a.normed, out_from, dim)};
  // Rows that are read but do not leave need no coefficients.
  collapse_and_norm(ctx, row(a.h, read_from, hc * dim), row(a.pre, read_from, hc), w.attention_norm,
                    out_from - read_from, row(a.collapsed, read_from, dim),
                    row(a.normed, read_from, dim));
  enter_sublayer(ctx, {}, row(a.pre, out_from, hc), w.attention_norm, w.hc_attention, out,
                 {.pre = pre_attention, .post = post, .comb = comb});
  attend();
  if (n_out <= 0) return;
  float* y = row(a.sublayer_out, out_from, dim);
  enter_sublayer(ctx, {.y = y, .post = post, .comb = comb}, pre_attention, w.ffn_norm, w.hc_ffn,
                 out, {.pre = pre_ffn, .post = post, .comb = comb});
  moe(ctx, w.moe, out.normed, n_out, y);
  expand(ctx, y, post, comb, n_out, out.h);
  std::copy_n(pre_ffn, n_out * hc, row(a.pre, out_from, hc));  // handed to the next layer
}

}  // namespace

std::int64_t first_read_row(const LayerPlan& plan, const ActiveRows& rows) {
  const bool owns_global = plan.mode == LayerMode::kFull;
  return owns_global ? std::min(rows.global_from, rows.window_from) : rows.window_from;
}

void layer(const LayerContext& ctx, const LayerWeights& w, int index, const ActiveRows& rows,
           const Chunk& chunk, Activations& a) {
  const std::int64_t dim = ctx.config.dim, hc = ctx.config.hc_mult;
  const std::int64_t read_from = first_read_row(ctx.plan, rows);
  const std::int64_t out_from = std::min(rows.output_from, chunk.n);
  if (read_from >= chunk.n) return;
  const StepMemory::Scope scope(ctx.memory);
  if (ctx.plan.engram_slot >= 0) {
    const auto ids = engram_row_ids(ctx, chunk, read_from);
    engram_update(ctx, w.engram, engram_kv(ctx, w.engram, engram_rows(ctx, w.engram, ids)),
                  a.h.data() + read_from * hc * dim);
  }
  sublayers(ctx, w, read_from, out_from, chunk.n - out_from, a,
            [&] { attention(ctx, w.attention, index, rows, chunk, a); });
}

void draft_layer(const LayerContext& ctx, const LayerWeights& w, const DraftBlock& block,
                 Activations& a) {
  const StepMemory::Scope scope(ctx.memory);
  sublayers(ctx, w, 0, 0, block.n, a, [&] { draft_attention(ctx, w.attention, block, a); });
}

void mix(const LayerContext& ctx, const HyperConnectionWeights& w, const float* h, std::int64_t n,
         float* pre, float* post, float* comb) {
  ctx.k.hc_mix(ctx.run, {.h = h,
                         .rows = n,
                         .n_streams = ctx.config.hc_mult,
                         .dim = ctx.config.dim,
                         .fn = w.fn,
                         .scale = w.scale.data,
                         .base = w.base.data,
                         .sinkhorn_iterations = ctx.config.hc_sinkhorn_iters,
                         .eps = ctx.config.hc_eps,
                         .norm_eps = ctx.config.norm_eps,
                         .pre = pre,
                         .post = post,
                         .comb = comb});
}

void collapse_and_norm(const LayerContext& ctx, const float* h, const float* pre,
                       const Bf16View& norm, std::int64_t n, float* collapsed, float* normed) {
  ctx.k.hc_collapse(ctx.run, {.h = h,
                              .weights = pre,
                              .rows = n,
                              .n_streams = ctx.config.hc_mult,
                              .dim = ctx.config.dim,
                              .out = collapsed,
                              .round_bf16 = ctx.arithmetic.round_bf16});
  ctx.k.rms_norm(ctx.run, {.x = collapsed,
                           .rows = n,
                           .dim = ctx.config.dim,
                           .x_stride = ctx.config.dim,
                           .weight = norm.data,
                           .eps = ctx.config.norm_eps,
                           .out = normed,
                           .out_stride = ctx.config.dim,
                           .round_bf16 = ctx.arithmetic.round_bf16});
}

void expand(const LayerContext& ctx, const float* y, const float* post, const float* comb,
            std::int64_t n, float* h) {
  ctx.k.hc_expand(ctx.run, {.y = y,
                            .post = post,
                            .comb = comb,
                            .rows = n,
                            .n_streams = ctx.config.hc_mult,
                            .dim = ctx.config.dim,
                            .h = h,
                            .round_bf16 = ctx.arithmetic.round_bf16});
}

}  // namespace cairn::engine
