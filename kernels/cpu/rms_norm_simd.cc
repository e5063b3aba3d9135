// RMSNorm in vectors. Per element the operations of rms_norm.cc in their order, so the same bits.
#include "kernels/kernels.h"
#include "kernels/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/normalise_row_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace {

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
