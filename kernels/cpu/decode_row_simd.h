// decode_row for vectors: packed rows to f32, exactly. Included again for each
// instruction set.
#if defined(CAIRN_KERNELS_CPU_DECODE_ROW_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef CAIRN_KERNELS_CPU_DECODE_ROW_SIMD_H_
#define CAIRN_KERNELS_CPU_DECODE_ROW_SIMD_H_
#else
#undef CAIRN_KERNELS_CPU_DECODE_ROW_SIMD_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/kv_row.h"
#include "kernels/number_formats.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twice the value of each of 32 E2M1 codes in 16 bytes of pairs, in element order.
HWY_INLINE void twice_e2m1(const std::uint8_t* pairs, std::int8_t* out) {
  const hn::FixedTag<std::uint8_t, 16> d8;
  HWY_ALIGN static constexpr std::int8_t kTwice[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};
  const auto table = hn::Load(d8, reinterpret_cast<const std::uint8_t*>(kTwice));
  const auto v = hn::LoadU(d8, pairs);
  const auto even = hn::TableLookupBytes(table, hn::And(v, hn::Set(d8, 15)));
  const auto odd = hn::TableLookupBytes(
      table,
      hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(hn::FixedTag<std::uint16_t, 8>(), v))),
              hn::Set(d8, 15)));
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  hn::StoreU(hn::InterleaveLower(d8, even, odd), d8, bytes);
  hn::StoreU(hn::InterleaveUpper(d8, even, odd), d8, bytes + 16);
}

// x[0..n) = integers[0..n) * scale; n a multiple of 16.
template <class DF>
HWY_INLINE void scale_integers(DF d, const std::int8_t* integers, std::int64_t n, float scale,
                               float* x) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::int8_t, DF> d8;
  const auto s = hn::Set(d, scale);
  for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::MaxLanes(d))) {
    const auto v = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, integers + i)));
    hn::StoreU(hn::Mul(v, s), d, x + i);
  }
}

// Values of E4M3 codes: the exponent is moved to f32's; subnormal codes are 2 (x - 2^-7) of what
// that gives, the two codes with all bits set are NaN.
template <class DF>
HWY_INLINE hn::Vec<DF> e4m3_lanes(DF d, hn::Vec<hn::RebindToUnsigned<DF>> codes) {
  const hn::RebindToUnsigned<DF> du;
  const auto magnitude = hn::And(codes, hn::Set(du, 0x7Fu));
  const auto normal =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23)));
  const auto above = hn::Sub(normal, hn::Set(d, 0x1p-7f));
  const auto small = hn::RebindMask(d, hn::Lt(hn::BitCast(hn::RebindToSigned<DF>(), magnitude),
                                              hn::Set(hn::RebindToSigned<DF>(), 8)));
  const auto nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(du, 0x7Fu)));
  auto value = hn::IfThenElse(small, hn::Add(above, above), normal);
  value = hn::IfThenElse(nan, hn::BitCast(d, hn::Set(du, 0x7FC00000u)), value);
  const auto sign = hn::ShiftLeft<24>(hn::And(codes, hn::Set(du, 0x80u)));
  return hn::Or(value, hn::BitCast(d, sign));
}

template <class DF>
HWY_INLINE void decode_qn4(DF d, const std::uint8_t* row, std::int64_t dim, float* x) {
  const std::uint8_t* scales = row + dim / 2;
  for (std::int64_t i = 0; i < dim; i += 32) {
    HWY_ALIGN std::int8_t twice[32];
    twice_e2m1(row + i / 2, twice);
    // Half a scale is exact.
    scale_integers(d, twice, 16, 0.5f * e4m3_to_f32(scales[i / 16]), x + i);
    scale_integers(d, twice + 16, 16, 0.5f * e4m3_to_f32(scales[i / 16 + 1]), x + i + 16);
  }
}

template <class DF>
HWY_INLINE void decode_q8(DF d, const std::uint8_t* codes_of_row, const std::uint8_t* scales,
                          std::int64_t dim, float* x) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint8_t, DF> d8;
  for (std::int64_t i = 0; i < dim; i += 32) {
    const auto scale = hn::Set(d, e8m0_to_f32(scales[i / 32]));
    for (std::int64_t c = i; c < i + 32; c += static_cast<std::int64_t>(hn::MaxLanes(d))) {
      const auto codes = hn::PromoteTo(du, hn::LoadU(d8, codes_of_row + c));
      hn::StoreU(hn::Mul(e4m3_lanes(d, codes), scale), d, x + c);
    }
  }
}

// As decode_row.
inline void decode_row_lanes(RowFormat format, const std::byte* row, std::int64_t dim, float* x) {
  const hn::CappedTag<float, 16> d;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
  if (format == RowFormat::kQ8) return decode_q8(d, bytes, bytes + dim, dim, x);
  if (format == RowFormat::kQn4) return decode_qn4(d, bytes, dim, x);
  decode_row(format, row, dim, x);
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#endif  // toggle
