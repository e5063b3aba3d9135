// Output columns side by side in vector lanes: what the products of FP4 and FP8 weights share.
//
// A lane is a column, so a row's sum over K runs in its own order within its lane, on any width of
// vectors. Weights lie row by row in the checkpoint, a column of the product being a row there:
// what a lane needs next is a dword (or a byte) of each of as many rows as there are lanes, which a
// 4x4 transposition of dwords inside each 128-bit part gives. Included again for each instruction
// set.
#if defined(CAIRN_KERNELS_CPU_COLUMN_GROUP_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef CAIRN_KERNELS_CPU_COLUMN_GROUP_SIMD_H_
#define CAIRN_KERNELS_CPU_COLUMN_GROUP_SIMD_H_
#else
#undef CAIRN_KERNELS_CPU_COLUMN_GROUP_SIMD_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"
#include "kernels/matmul.h"
#include "kernels/number_formats.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::ScalableTag<std::int32_t>;
using U32 = hn::ScalableTag<std::uint32_t>;
using U64 = hn::ScalableTag<std::uint64_t>;
using U8 = hn::ScalableTag<std::uint8_t>;
using I16 = hn::ScalableTag<std::int16_t>;
using U16 = hn::ScalableTag<std::uint16_t>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;
using VU32 = hn::Vec<U32>;
using VU8 = hn::Vec<U8>;
using VI16 = hn::Vec<I16>;

// Columns of one vector.
inline constexpr int kLanesF32 = static_cast<int>(hn::MaxLanes(F32{}));
inline constexpr int kParts = kLanesF32 / 4;  // of 128 bits

// A pointer whose relation to others the compiler does not know: it keeps it in a register instead
// of adding up and storing an address for each element that an unrolled loop reads.
template <class T>
HWY_INLINE const T* opaque(const T* pointer) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(pointer));
#endif
  return pointer;
}

// Where in memory the weight rows of the lanes are: one after the other, `stride` bytes apart.
struct LaneRows {
  HWY_INLINE LaneRows(const std::uint8_t* first, std::int64_t stride) : stride(stride) {
    for (int p = 0; p < kParts; ++p) part[p] = first + 4 * p * stride;
  }
  HWY_INLINE void advance(std::int64_t n_bytes) {
    for (int p = 0; p < kParts; ++p) part[p] = opaque(part[p] + n_bytes);
  }
  const std::uint8_t* part[kParts];  // of the first lane of each 128 bits
  std::int64_t stride;
};

// The rows from `first` on where only n_valid < kLanesF32 are there: n_bytes of each are copied,
// the last one for the lanes beyond. copy: [kLanesF32, n_bytes].
HWY_INLINE LaneRows padded_rows(const std::uint8_t* first, std::int64_t stride, int n_valid,
                                std::int64_t n_bytes, std::uint8_t* copy) {
  for (int lane = 0; lane < kLanesF32; ++lane) {
    std::memcpy(copy + lane * n_bytes, first + std::min(lane, n_valid - 1) * stride,
                static_cast<std::size_t>(n_bytes));
  }
  return {copy, n_bytes};
}

// Part p of the result: 16 bytes of row `row + 4 * p`.
HWY_INLINE VU8 load_parts(const LaneRows& rows, int row) {
  const auto load = [&](int p) {
    return hn::LoadU(hn::Full128<std::uint8_t>{}, rows.part[p] + row * rows.stride);
  };
#if HWY_TARGET == HWY_AVX3
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(0).raw), load(1).raw, 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load(2).raw), load(3).raw, 1);
  return VU8{_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
#elif HWY_TARGET == HWY_AVX2
  return VU8{_mm256_inserti128_si256(_mm256_castsi128_si256(load(0).raw), load(1).raw, 1)};
#else
  return load(0);
#endif
}

// dwords[j]: lane l has bytes 4j .. 4j+3 of the next 16 bytes of row l.
HWY_INLINE void load_dwords(const LaneRows& rows, VU32 (&dwords)[4]) {
  const U32 u32;
  const U64 u64;
  const VU32 r0 = hn::BitCast(u32, load_parts(rows, 0));
  const VU32 r1 = hn::BitCast(u32, load_parts(rows, 1));
  const VU32 r2 = hn::BitCast(u32, load_parts(rows, 2));
  const VU32 r3 = hn::BitCast(u32, load_parts(rows, 3));
  const auto low01 = hn::BitCast(u64, hn::InterleaveLower(u32, r0, r1));
  const auto low23 = hn::BitCast(u64, hn::InterleaveLower(u32, r2, r3));
  const auto high01 = hn::BitCast(u64, hn::InterleaveUpper(u32, r0, r1));
  const auto high23 = hn::BitCast(u64, hn::InterleaveUpper(u32, r2, r3));
  dwords[0] = hn::BitCast(u32, hn::InterleaveLower(u64, low01, low23));
  dwords[1] = hn::BitCast(u32, hn::InterleaveUpper(u64, low01, low23));
  dwords[2] = hn::BitCast(u32, hn::InterleaveLower(u64, high01, high23));
  dwords[3] = hn::BitCast(u32, hn::InterleaveUpper(u64, high01, high23));
}

// e8m0_to_f32 of the low byte of each lane.
HWY_INLINE VF32 e8m0_lanes(VU32 bytes) {
  const U32 u32;
  const VU32 code = hn::And(bytes, hn::Set(u32, 0xFF));
  const VU32 value = hn::Max(hn::ShiftLeft<23>(code), hn::Set(u32, 0x00400000));
  const VU32 nan = hn::IfThenElseZero(hn::Eq(code, hn::Set(u32, 255)), hn::Set(u32, 0x00400000));
  return hn::BitCast(F32{}, hn::Or(value, nan));
}

// E8M0 scales of up to 16 blocks of the first n_valid lanes' rows: out[block * stride + lane].
// Reads n_blocks bytes of each row.
HWY_INLINE void decode_scales(const std::uint8_t* first, std::int64_t row_bytes, int n_valid,
                              int n_blocks, float* out, std::int64_t stride) {
  HWY_ALIGN std::uint8_t copy[16 * kLanesF32];
  LaneRows rows{first, row_bytes};
  if (n_blocks < 16 || n_valid < kLanesF32) {
    for (int lane = 0; lane < kLanesF32; ++lane) {
      std::memcpy(copy + 16 * lane, first + std::min(lane, n_valid - 1) * row_bytes,
                  static_cast<std::size_t>(n_blocks));
    }
    rows = LaneRows(copy, 16);
  }
  VU32 dwords[4];
  load_dwords(rows, dwords);
  for (int block = 0; block < n_blocks; ++block) {
    const VU32 bytes = hn::ShiftRightSame(dwords[block / 4], 8 * (block % 4));
    hn::StoreU(e8m0_lanes(bytes), F32{}, out + block * stride);
  }
}

// Stores n <= kLanesF32 results of neighbouring columns.
HWY_INLINE void store_columns(const MatmulOut& out, VF32 sums, std::int64_t row,
                              std::int64_t column, int n) {
  const F32 f32;
  if (out.round_bf16) sums = round_to_bf16(f32, sums);
  float* at = out.y + row * out.y_stride + column;
  if (n == kLanesF32) {
    hn::StoreU(sums, f32, at);
    return;
  }
  HWY_ALIGN float padded[kLanesF32];
  hn::Store(sums, f32, padded);
  std::memcpy(at, padded, static_cast<std::size_t>(n) * sizeof(float));
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#endif  // toggle
