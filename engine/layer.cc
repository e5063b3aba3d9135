// A layer is two sublayers, attention and mixture of experts, each between a collapse of the
// residual streams and an expansion back into them. The collapse weights come from the sublayer
// before: that shift is part of the model (spec/architecture.md section 5.4).
#include "engine/layer.h"

#include <algorithm>

#include "engine/attention.h"
#include "engine/engram.h"
#include "engine/moe.h"

namespace cairn::engine {

void layer(const LayerContext& ctx, const LayerWeights& w, int index, const ActiveRows& rows,
           const Chunk& chunk, Activations& a) {
  const std::int64_t dim = ctx.config.dim, hc = ctx.config.hc_mult;
  // Rows that anything in this layer reads, and rows that leave it.
  const bool owns_global = ctx.plan.mode == LayerMode::kFull;
  const std::int64_t read_from =
      owns_global ? std::min(rows.global_from, rows.window_from) : rows.window_from;
  const std::int64_t out_from = rows.output_from;
  const std::int64_t n_read = chunk.n - read_from, n_out = chunk.n - out_from;
  if (n_read <= 0) return;
  const auto streams = [&](std::int64_t t) { return a.h.data() + t * hc * dim; };
  const auto row = [&](std::vector<float>& v, std::int64_t t, std::int64_t width) {
    return v.data() + t * width;
  };

  if (ctx.plan.engram_slot >= 0) {
    const auto ids = engram_row_ids(ctx, chunk, read_from);
    engram_update(ctx, w.engram, engram_kv(ctx, w.engram, engram_rows(ctx, w.engram, ids)),
                  streams(read_from));
  }

  collapse_and_norm(ctx, streams(read_from), row(a.pre, read_from, hc), w.attention_norm, n_read,
                    row(a.collapsed, read_from, dim), row(a.normed, read_from, dim));
  attention(ctx, w.attention, index, rows, chunk, a);
  if (n_out <= 0) return;
  float* h = streams(out_from);
  float* post = row(a.post, out_from, hc);
  float* comb = row(a.comb, out_from, hc * hc);
  float* pre_attention = row(a.pre_attention, out_from, hc);
  mix(ctx, w.hc_attention, h, n_out, pre_attention, post, comb);
  expand(ctx, row(a.sublayer_out, out_from, dim), post, comb, n_out, h);

  float* pre_ffn = row(a.pre_ffn, out_from, hc);
  mix(ctx, w.hc_ffn, h, n_out, pre_ffn, post, comb);
  collapse_and_norm(ctx, h, pre_attention, w.ffn_norm, n_out, row(a.collapsed, out_from, dim),
                    row(a.normed, out_from, dim));
  moe(ctx, w.moe, row(a.normed, out_from, dim), n_out, row(a.sublayer_out, out_from, dim));
  expand(ctx, row(a.sublayer_out, out_from, dim), post, comb, n_out, h);
  std::copy_n(pre_ffn, n_out * hc, row(a.pre, out_from, hc));  // handed to the next layer
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
