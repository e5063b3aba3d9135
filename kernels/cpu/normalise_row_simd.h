// RMSNorm of one row in vectors. Per element the operations of rms_norm.cc in their order, so the
// same bits. Included again for each instruction set.
#if defined(CAIRN_KERNELS_CPU_NORMALISE_ROW_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef CAIRN_KERNELS_CPU_NORMALISE_ROW_SIMD_H_
#define CAIRN_KERNELS_CPU_NORMALISE_ROW_SIMD_H_
#else
#undef CAIRN_KERNELS_CPU_NORMALISE_ROW_SIMD_H_
#endif

#include <cmath>
#include <cstdint>

#include "kernels/cpu/lane_sum_simd.h"
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"
#include "kernels/number_formats.h"
#include "kernels/rms_norm.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x: [a.dim] -> out: [a.dim], may alias.
HWY_INLINE void normalise_row(const RmsNormArgs& a, const float* x, float* out) {
  const float mean_square = dot_f32(x, x, a.dim) / static_cast<float>(a.dim);
  const float r = 1.0f / std::sqrt(mean_square + a.eps);
  const hn::ScalableTag<float> f32;
  const auto n = static_cast<std::int64_t>(hn::Lanes(f32));
  std::int64_t i = 0;
  for (; i + n <= a.dim; i += n) {
    const auto scaled = hn::Mul(hn::LoadU(f32, x + i), hn::Set(f32, r));
    const auto y = hn::Mul(load_bf16(f32, a.weight + i), scaled);
    hn::StoreU(a.round_bf16 ? round_to_bf16(f32, y) : y, f32, out + i);
  }
  for (; i < a.dim; ++i) {
    const float y = to_f32(a.weight[i]) * (x[i] * r);
    out[i] = a.round_bf16 ? kernels::round_to_bf16(y) : y;
  }
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#endif  // toggle
