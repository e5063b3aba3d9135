// RMSNorm in vectors. Per element the operations of rms_norm.cc in their order, so the same bits.
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/number_formats.h"
#include "kernels/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/lane_sum_simd.h"
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace {

void normalise_row(const RmsNormArgs& a, const float* x, float* out) {
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

void rms_norm(Context& context, const RmsNormArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      normalise_row(a, a.x + row * a.x_stride, a.out + row * a.out_stride);
    }
  });
}

}  // namespace

void use_rms_norm(KernelTable& table) { table.rms_norm = rms_norm; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_rms_norm(InstructionSet set, KernelTable& table) { CAIRN_USE(use_rms_norm, set, table); }

}  // namespace cairn::kernels
#endif  // HWY_ONCE
