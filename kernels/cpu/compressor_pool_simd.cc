// Pooling in vectors; channels are the lanes.
#include "kernels/compressor_pool.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compressor_pool_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/exponential_simd.h"
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr std::int64_t kN = static_cast<std::int64_t>(hn::MaxLanes(DF()));

void pool_group(const CompressorPoolArgs& a, const float* values, const float* gates, float* out) {
  const DF d;
  for (std::int64_t c = 0; c < a.dim; c += kN) {
    const auto gate = [&](std::int64_t r) HWY_ATTR { return hn::LoadU(d, gates + r * a.dim + c); };
    VF largest = gate(0);
    for (std::int64_t r = 1; r < a.ratio; ++r) {
      largest = hn::IfThenElse(hn::Lt(largest, gate(r)), gate(r), largest);
    }
    VF sum = hn::Zero(d);
    for (std::int64_t r = 0; r < a.ratio; ++r) {
      sum = hn::Add(sum, exp_lanes(d, hn::Sub(gate(r), largest)));
    }
    VF pooled = hn::Zero(d);
    for (std::int64_t r = 0; r < a.ratio; ++r) {
      const VF weight = hn::Div(exp_lanes(d, hn::Sub(gate(r), largest)), sum);
      pooled = hn::Add(pooled, hn::Mul(weight, hn::LoadU(d, values + r * a.dim + c)));
    }
    hn::StoreU(a.round_bf16 ? round_to_bf16(d, pooled) : pooled, d, out + c);
  }
}

void compressor_pool(Context& context, const CompressorPoolArgs& a) {
  if (a.dim % kN != 0) return compressor_pool_scalar(context, a);
  const std::int64_t width = a.ratio * a.dim;
  context.parallel_for(a.groups, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      pool_group(a, a.values + group * width, a.gates + group * width, a.out + group * a.dim);
    }
  });
}

}  // namespace

void use_compressor_pool(KernelTable& table) { table.compressor_pool = compressor_pool; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_compressor_pool(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_compressor_pool, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
