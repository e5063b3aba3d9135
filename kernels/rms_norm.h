// RMSNorm (spec/architecture.md section 3.6): y = w * (x * rsqrt(mean(x^2) + eps)), f32, one
// rounding.
#ifndef CAIRN_KERNELS_RMS_NORM_H_
#define CAIRN_KERNELS_RMS_NORM_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor_view.h"

namespace cairn::kernels {

struct RmsNormArgs {
  const float* x = nullptr;  // [rows, dim], row stride x_stride
  std::int64_t rows = 0, dim = 0, x_stride = 0;
  const Bf16* weight = nullptr;  // [dim]
  float eps = 0;                 // added to the mean square, before the root
  float* out = nullptr;          // [rows, dim], row stride out_stride; may alias x
  std::int64_t out_stride = 0;
  bool round_bf16 = false;
};
using RmsNormFn = void(Context&, const RmsNormArgs&);
RmsNormFn rms_norm_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_RMS_NORM_H_
