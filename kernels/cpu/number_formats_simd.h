// number_formats.h in vectors. Included again for each instruction set.
#if defined(CAIRN_KERNELS_CPU_NUMBER_FORMATS_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef CAIRN_KERNELS_CPU_NUMBER_FORMATS_SIMD_H_
#define CAIRN_KERNELS_CPU_NUMBER_FORMATS_SIMD_H_
#else
#undef CAIRN_KERNELS_CPU_NUMBER_FORMATS_SIMD_H_
#endif

#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/tensor_view.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// round_to_bf16 of each lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V round_to_bf16(D f32, V x) {
  const hn::RebindToUnsigned<D> u32;
  const auto bits = hn::BitCast(u32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7FFF)));
  const auto nan = hn::Or(bits, hn::Set(u32, 0x400000));
  const auto kept = hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(x)), nan, rounded);
  return hn::BitCast(f32, hn::And(kept, hn::Set(u32, 0xFFFF0000u)));
}

// Lanes(f32) bf16 numbers. Unaligned.
template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D f32, const Bf16* from) {
  const hn::RebindToUnsigned<D> u32;
  const hn::Rebind<std::uint16_t, D> u16;
  const auto bits = hn::LoadU(u16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, bits)));
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#endif  // toggle
