#include "engine/linear.h"

#include <algorithm>

namespace cairn::engine {

LinearInput::LinearInput(const LayerContext& ctx, const float* x, std::int64_t rows,
                         std::int64_t cols)
    : x_(x),
      rows_(rows),
      cols_(cols),
      gathered_(&ctx.memory),
      codes_(&ctx.memory),
      scales_(&ctx.memory) {
  if (!ctx.arithmetic.quantise_activations) return;
  codes_.resize(static_cast<std::size_t>(rows * cols));
  scales_.resize(static_cast<std::size_t>(rows * cols / 32));
  // Groups are of 32 and rows are whole groups, so all rows are one run of groups.
  ctx.k.quantise_q8(ctx.run,
                    {.x = x, .n = rows * cols, .codes = codes_.data(), .scales = scales_.data()});
}

LinearInput::LinearInput(const LayerContext& ctx, const LinearInput& from,
                         std::span<const std::int64_t> rows)
    : x_(nullptr),
      rows_(static_cast<std::int64_t>(rows.size())),
      cols_(from.cols_),
      gathered_(&ctx.memory),
      codes_(&ctx.memory),
      scales_(&ctx.memory) {
  const auto gather = [&](const auto& source, std::int64_t width, auto& target) {
    target.resize(static_cast<std::size_t>(rows_ * width));
    for (std::int64_t i = 0; i < rows_; ++i) {
      std::copy_n(source + rows[static_cast<std::size_t>(i)] * width, width,
                  target.data() + i * width);
    }
  };
  if (from.quantised()) {
    gather(from.codes_.data(), cols_, codes_);
    gather(from.scales_.data(), cols_ / 32, scales_);
  } else {
    gather(from.x_, cols_, gathered_);
    x_ = gathered_.data();
  }
}

void linear(const LayerContext& ctx, const LinearInput& x, const kernels::Fp8View& w, float* y) {
  const kernels::MatmulOut out{y, w.rows, ctx.arithmetic.round_bf16};
  if (x.quantised()) {
    ctx.k.matmul_fp8_q8(ctx.run, {.x = x.q8(), .rows = x.rows(), .w = w, .out = out});
  } else {
    ctx.k.matmul_fp8(ctx.run,
                     {.x = x.x(), .rows = x.rows(), .x_stride = x.cols(), .w = w, .out = out});
  }
}

void linear(const LayerContext& ctx, const LinearInput& x, const kernels::Fp4View& w, float* y) {
  const kernels::MatmulOut out{y, w.rows, ctx.arithmetic.round_bf16};
  if (x.quantised()) {
    ctx.k.matmul_fp4_q8(ctx.run, {.x = x.q8(), .rows = x.rows(), .w = w, .out = out});
  } else {
    ctx.k.matmul_fp4(ctx.run,
                     {.x = x.x(), .rows = x.rows(), .x_stride = x.cols(), .w = w, .out = out});
  }
}

void linear(const LayerContext& ctx, const float* x, std::int64_t rows, const kernels::Bf16View& w,
            float* y, bool rounded) {
  ctx.k.matmul_bf16(ctx.run, {.x = x,
                              .rows = rows,
                              .x_stride = w.cols,
                              .w = w,
                              .out = {y, w.rows, rounded && ctx.arithmetic.round_bf16}});
}

}  // namespace cairn::engine
