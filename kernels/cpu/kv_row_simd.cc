// The quantisers in vectors: a group's largest magnitude, its scale as kv_row.cc computes it, then
// the codes of all elements at once. Groups with an infinity are the scalar version's.
#include <algorithm>
#include <limits>

#include "kernels/kernels.h"
#include "kernels/kv_row.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_row_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
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

using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;

// The largest magnitude of n numbers, at least `floor`. n: a multiple of kN.
float absolute_max(const float* x, std::int64_t n, float floor) {
  const DF d;
  VF largest = hn::Set(d, floor);
  for (std::int64_t i = 0; i < n; i += kN) {
    const VF magnitude = hn::Abs(hn::LoadU(d, x + i));
    largest = hn::IfThenElse(hn::Lt(largest, magnitude), magnitude, largest);
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// to_e4m3 of each lane, in the low byte.
HWY_INLINE hn::Vec<DI> to_e4m3_lanes(VF x) {
  const DF d;
  const DU du;
  const DI di;
  const VF magnitude = hn::Abs(x);
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du, x)), hn::Set(du, 0x80u));
  // See to_e4m3: below 2^-6 a grid of 2^-9, above three bits of mantissa.
  const VF shift = hn::Set(d, 12582912.0f);
  const VF steps = hn::Sub(hn::Add(hn::Mul(magnitude, hn::Set(d, 512.0f)), shift), shift);
  const auto bits = hn::BitCast(du, magnitude);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<20>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFFu))));
  const auto normal =
      hn::Min(hn::BitCast(di, hn::Sub(rounded, hn::Set(du, 120u << 3))), hn::Set(di, 0x7E));
  const auto small = hn::Lt(magnitude, hn::Set(d, 0.015625f));
  auto code = hn::IfThenElse(hn::RebindMask(di, small), hn::ConvertTo(di, steps), normal);
  const auto nan = hn::RebindMask(di, hn::IsNaN(x));
  code = hn::IfThenElse(nan, hn::Set(di, 0x7F), code);
  return hn::Or(code, hn::BitCast(di, sign));
}

// to_e2m1 of each lane: as many steps up as thresholds are passed.
HWY_INLINE hn::Vec<DI> to_e2m1_lanes(VF x) {
  const DF d;
  const DI di;
  const VF magnitude = hn::Abs(x);
  auto code = hn::Zero(di);
  const auto pass = [&](auto mask) HWY_ATTR {
    code = hn::Sub(code, hn::VecFromMask(di, hn::RebindMask(di, mask)));
  };
  pass(hn::Gt(magnitude, hn::Set(d, 0.25f)));
  pass(hn::Ge(magnitude, hn::Set(d, 0.75f)));
  pass(hn::Gt(magnitude, hn::Set(d, 1.25f)));
  pass(hn::Ge(magnitude, hn::Set(d, 1.75f)));
  pass(hn::Gt(magnitude, hn::Set(d, 2.5f)));
  pass(hn::Ge(magnitude, hn::Set(d, 3.5f)));
  pass(hn::Gt(magnitude, hn::Set(d, 5.0f)));
  const auto sign = hn::ShiftRight<28>(hn::BitCast(DU(), x));
  return hn::Or(code, hn::And(hn::BitCast(di, sign), hn::Set(di, 8)));
}

void quantise_groups_q8(const float* x, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales) {
  const DF d;
  const hn::Rebind<std::uint8_t, DF> d8;
  for (std::int64_t g = 0; g < n; g += 32) {
    const float amax = absolute_max(x + g, 32, 1e-4f);
    if (!(amax <= std::numeric_limits<float>::max())) {
      kernels::quantise_q8(x + g, 32, codes + g, scales + g / 32);
      continue;
    }
    const std::uint8_t scale = ceil_power_of_two_e8m0(amax * kInverse448);
    scales[g / 32] = scale;
    const VF inverse = hn::Set(d, 1.0f / e8m0_to_f32(scale));  // a power of two: exact
    for (std::int64_t i = g; i < g + 32; i += kN) {
      const auto code = to_e4m3_lanes(hn::Mul(hn::LoadU(d, x + i), inverse));
      hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
    }
  }
}

// n E2M1 codes of x / scale as pairs. n: 16 or 32.
HWY_INLINE void put_pairs(const float* x, std::int64_t n, float scale, std::uint8_t* pairs) {
  const DF d;
  const hn::Rebind<std::uint8_t, DF> d8;
  std::uint8_t codes[32];
  for (std::int64_t i = 0; i < n; i += kN) {
    const auto code = to_e2m1_lanes(hn::Div(hn::LoadU(d, x + i), hn::Set(d, scale)));
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
  }
  for (std::int64_t i = 0; i < n / 2; ++i) {
    pairs[i] = static_cast<std::uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
  }
}

void encode_qm4(const float* x, std::int64_t dim, std::byte* row) {
  auto* pairs = reinterpret_cast<std::uint8_t*>(row);
  for (std::int64_t g = 0; g < dim; g += 32) {
    const float amax = absolute_max(x + g, 32, 6.0f * 0x1p-126f);
    const std::uint8_t scale = ceil_power_of_two_e8m0(amax * kInverse6);
    pairs[dim / 2 + g / 32] = scale;
    put_pairs(x + g, 32, e8m0_to_f32(scale), pairs + g / 2);
  }
}

void encode_qn4(const float* x, std::int64_t dim, std::byte* row) {
  auto* pairs = reinterpret_cast<std::uint8_t*>(row);
  for (std::int64_t g = 0; g < dim; g += 16) {
    const std::uint8_t scale = to_e4m3(absolute_max(x + g, 16, 6.0f * 0x1p-9f) / 6.0f);
    pairs[dim / 2 + g / 16] = scale;
    put_pairs(x + g, 16, e4m3_to_f32(scale), pairs + g / 2);
  }
}

void encode_row(RowFormat format, const float* x, std::int64_t dim, std::byte* row) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(row);
  switch (format) {
    case RowFormat::kQ8:
      return quantise_groups_q8(x, dim, bytes, bytes + dim);
    case RowFormat::kQm4:
      return encode_qm4(x, dim, row);
    case RowFormat::kQn4:
      return encode_qn4(x, dim, row);
    case RowFormat::kF32:
      return kernels::encode_row(format, x, dim, row);
  }
}

void quantise_q8(Context& context, const QuantiseQ8Args& a) {
  context.parallel_for(a.n / 32, 1024, [&](std::int64_t begin, std::int64_t end) {
    quantise_groups_q8(a.x + 32 * begin, 32 * (end - begin), a.codes + 32 * begin,
                       a.scales + begin);
  });
}

}  // namespace

void use_kv_row(KernelTable& table) {
  table.encode_row = encode_row;
  table.quantise_q8 = quantise_q8;
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_kv_row(InstructionSet set, KernelTable& table) { CAIRN_USE(use_kv_row, set, table); }

}  // namespace cairn::kernels
#endif  // HWY_ONCE
