// y = W x for every weight format of the family (spec/architecture.md section 3.5).
//
// Row invariance: y[t] depends on x[t] and W only, and every sum over K has one fixed order, the
// same on every instruction set:
//
//  * quantised activations: sum = fma(dot, x_scale * w_scale, sum) in f32 for each 32-block in
//    ascending order, from 0. With FP4 weights `dot` is the exact dot product of the block's codes,
//    an integer of at most 27 bits in units of 2^-10, rounded once to f32, and the unit is part of
//    x_scale. With FP8 weights it is the f32 sum of the 32 products in ascending order, from 0; the
//    products are exact.
//  * everything else: eight f64 lanes in a fixed order, rounded once to f32 (cpu/lane_sum.h).
//
// A NaN code or scale makes the sums NaN that it is part of.
#ifndef CAIRN_KERNELS_MATMUL_H_
#define CAIRN_KERNELS_MATMUL_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor_view.h"

namespace cairn::kernels {

// Activations after Q8: what FP8 and FP4 products in reference arithmetic take.
struct Q8Rows {
  const std::uint8_t* codes = nullptr;   // [rows, cols] E4M3
  const std::uint8_t* scales = nullptr;  // [rows, cols/32] E8M0
};

struct MatmulOut {
  float* y = nullptr;         // [rows, W.rows], row stride y_stride
  std::int64_t y_stride = 0;  // elements
  bool round_bf16 = false;    // round each result once to bf16
};

struct MatmulFp8Q8Args {
  Q8Rows x;
  std::int64_t rows = 0;
  Fp8View w;
  MatmulOut out;
};
struct MatmulFp4Q8Args {
  Q8Rows x;
  std::int64_t rows = 0;
  Fp4View w;
  MatmulOut out;
};
// Unquantised activations: x is [rows, W.cols], row stride x_stride elements.
struct MatmulFp8Args {
  const float* x = nullptr;
  std::int64_t rows = 0, x_stride = 0;
  Fp8View w;
  MatmulOut out;
};
struct MatmulFp4Args {
  const float* x = nullptr;
  std::int64_t rows = 0, x_stride = 0;
  Fp4View w;
  MatmulOut out;
};
struct MatmulBf16Args {
  const float* x = nullptr;
  std::int64_t rows = 0, x_stride = 0;
  Bf16View w;
  MatmulOut out;
};
struct MatmulF32Args {
  const float* x = nullptr;
  std::int64_t rows = 0, x_stride = 0;
  F32View w;
  MatmulOut out;
};

using MatmulFp8Q8Fn = void(Context&, const MatmulFp8Q8Args&);
using MatmulFp4Q8Fn = void(Context&, const MatmulFp4Q8Args&);
using MatmulFp8Fn = void(Context&, const MatmulFp8Args&);
using MatmulFp4Fn = void(Context&, const MatmulFp4Args&);
using MatmulBf16Fn = void(Context&, const MatmulBf16Args&);
using MatmulF32Fn = void(Context&, const MatmulF32Args&);

MatmulFp8Q8Fn matmul_fp8_q8_scalar;
MatmulFp4Q8Fn matmul_fp4_q8_scalar;
MatmulFp8Fn matmul_fp8_scalar;
MatmulFp4Fn matmul_fp4_scalar;
MatmulBf16Fn matmul_bf16_scalar;
MatmulF32Fn matmul_f32_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_MATMUL_H_
