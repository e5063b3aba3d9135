#include "engine/row_steps.h"

namespace cairn::engine {

void norm_rows(const LayerContext& ctx, const kernels::Bf16View& weight, std::span<float> x) {
  const std::int64_t dim = weight.cols;
  ctx.k.rms_norm(ctx.run, {.x = x.data(),
                           .rows = static_cast<std::int64_t>(x.size()) / dim,
                           .dim = dim,
                           .x_stride = dim,
                           .weight = weight.data,
                           .eps = ctx.config.norm_eps,
                           .out = x.data(),
                           .out_stride = dim,
                           .round_bf16 = ctx.arithmetic.round_bf16});
}

void rotate_rows(const LayerContext& ctx, std::span<float> x, std::int64_t n_vectors,
                 std::int64_t dim, std::span<const std::int64_t> positions, Rotation rotation) {
  ctx.k.rope(ctx.run, {.x = x.data(),
                       .rows = static_cast<std::int64_t>(positions.size()),
                       .n_vectors = n_vectors,
                       .dim = dim,
                       .rope_dim = ctx.config.rope_dim,
                       .frequencies = ctx.frequencies,
                       .positions = positions.data(),
                       .inverse = rotation == Rotation::kInverse,
                       .round_bf16 = ctx.arithmetic.round_bf16});
}

}  // namespace cairn::engine
