// exponential.h for vectors of f32: the same operations in the same order, so the same bits.
// Included again for each instruction set.
#if defined(CAIRN_KERNELS_CPU_EXPONENTIAL_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef CAIRN_KERNELS_CPU_EXPONENTIAL_SIMD_H_
#define CAIRN_KERNELS_CPU_EXPONENTIAL_SIMD_H_
#else
#undef CAIRN_KERNELS_CPU_EXPONENTIAL_SIMD_H_
#endif

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp of clamped, finite x in f64.
template <class DD, class V = hn::Vec<DD>>
HWY_INLINE V exp_of_clamped(DD d, V x) {
  const hn::RebindToUnsigned<DD> du;
  const V shift = hn::Set(d, kRoundingShift);
  const V t = hn::Mul(x, hn::Set(d, kLog2OfE));
  const V shifted = hn::Add(t, shift);
  const V r = hn::Sub(t, hn::Sub(shifted, shift));
  V p = hn::Set(d, kExp2Terms[7]);
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[6]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[5]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[4]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[3]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[2]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[1]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, kExp2Terms[0]));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, 1.0));
  return hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<52>(hn::BitCast(du, shifted))));
}

// exp_f32 of every lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_lanes(D d, V x) {
  const hn::Half<D> dh;
  const hn::Rebind<double, decltype(dh)> dd;
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, kExpLowest)), hn::Set(d, kExpHighest));
  const auto low = hn::DemoteTo(dh, exp_of_clamped(dd, hn::PromoteTo(dd, hn::LowerHalf(clamped))));
  const auto high =
      hn::DemoteTo(dh, exp_of_clamped(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, clamped))));
  return hn::IfThenElse(hn::Eq(x, x), hn::Combine(d, high, low), x);
}

// sigmoid_f32 of every lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_lanes(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_lanes(d, hn::Neg(x))));
}

// softplus of numbers in f64, not yet rounded.
template <class DD, class V = hn::Vec<DD>>
HWY_INLINE V softplus_f64(DD d, V z) {
  const V e = exp_of_clamped(d, hn::Max(hn::Neg(hn::Abs(z)), hn::Set(d, double{kExpLowest})));
  const V s = hn::Div(e, hn::Add(hn::Set(d, 2.0), e)), u = hn::Mul(s, s);
  V p = hn::Set(d, kAtanhTerms[9]);
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[8]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[7]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[6]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[5]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[4]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[3]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[2]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[1]));
  p = hn::Add(hn::Mul(p, u), hn::Set(d, kAtanhTerms[0]));
  const V positive = hn::IfThenElseZero(hn::Gt(z, hn::Zero(d)), z);
  return hn::Add(positive, hn::Mul(p, s));
}

// softplus_f32 of every lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softplus_lanes(D d, V z) {
  const hn::Half<D> dh;
  const hn::Rebind<double, decltype(dh)> dd;
  const auto low = hn::DemoteTo(dh, softplus_f64(dd, hn::PromoteTo(dd, hn::LowerHalf(z))));
  const auto high = hn::DemoteTo(dh, softplus_f64(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, z))));
  return hn::IfThenElse(hn::Eq(z, z), hn::Combine(d, high, low), z);
}

// One expert activation per lane, not rounded: see SwigluArgs. limit: of all lanes, 0 = no clamp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V swiglu_lanes(D d, V gate, V up, float weight, float limit) {
  if (limit > 0) {
    const V most = hn::Set(d, limit), least = hn::Set(d, -limit);
    gate = hn::IfThenElse(hn::Lt(most, gate), most, gate);
    up = hn::IfThenElse(hn::Lt(up, least), least, hn::IfThenElse(hn::Lt(most, up), most, up));
  }
  const V e = exp_lanes(d, hn::Neg(gate));
  const V activated = hn::Div(gate, hn::Add(hn::Set(d, 1.0f), e));
  return hn::Mul(hn::Mul(activated, up), hn::Set(d, weight));
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#endif  // toggle
