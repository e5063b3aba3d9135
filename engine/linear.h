// y = W x in the model's arithmetic: in reference arithmetic FP8 and FP4 weights meet activations
// quantised to Q8, once per input however many weights it meets.
#ifndef CAIRN_ENGINE_LINEAR_H_
#define CAIRN_ENGINE_LINEAR_H_

#include <cstdint>
#include <span>

#include "engine/layer_context.h"

namespace cairn::engine {

// An input of quantised products. Borrows x; owns the codes.
class LinearInput {
 public:
  // x: [rows, cols], contiguous; cols a multiple of 32.
  LinearInput(const LayerContext& ctx, const float* x, std::int64_t rows, std::int64_t cols);
  // The given rows of another input, in the given order.
  LinearInput(const LayerContext& ctx, const LinearInput& from, std::span<const std::int64_t> rows);

  const float* x() const { return x_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  bool quantised() const { return !codes_.empty(); }
  kernels::Q8Rows q8() const { return {codes_.data(), scales_.data()}; }

 private:
  const float* x_;
  std::int64_t rows_, cols_;
  StepVector<float> gathered_;
  StepVector<std::uint8_t> codes_, scales_;
};

// y: [rows, w.rows], contiguous, rounded to bf16 in reference arithmetic.
void linear(const LayerContext& ctx, const LinearInput& x, const kernels::Fp8View& w, float* y);
void linear(const LayerContext& ctx, const LinearInput& x, const kernels::Fp4View& w, float* y);
// bf16 weights, activations as they are. `rounded`: the result is a bf16 linear's (else f32's).
void linear(const LayerContext& ctx, const float* x, std::int64_t rows, const kernels::Bf16View& w,
            float* y, bool rounded);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_LINEAR_H_
