// FP4 weights by Q8 activations in integers.
//
// Sixteen times an E2M1 value is an integer of 8 bits, 64 times an E4M3 value one of 16 bits, but
// for a remainder of values below 1/8 that few activations have. So the dot product of a 32-block
// is an integer, exact in 32 bits and free of order:
//
//   I = sum of (64 x)(16 w) + 1/8 * sum of (512 x - 8 * 64 x)(16 w)     in units of 2^-10
//
// The first sum is products of pairs (pmaddwd, vpdpwssd); of the second only the pairs that have a
// remainder are computed. Then as matmul.h says: one rounding to f32, one fused multiply-add.
//
// Activations are prepared once a call. A thread decodes a group of columns for a run of blocks
// into its first-level cache, once for all rows, and gives each row its turn, its pairs broadcast.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/scratch.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_fp4_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/column_group_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace {

constexpr int kPairs = 16;        // of a block
constexpr int kBlocksOfRun = 16;  // decoded at a time
constexpr int kVectors = 2;       // of a column group
constexpr int kColumns = kVectors * kLanesF32;
constexpr int kPrefetchRuns = 2;  // how far ahead
constexpr int kRowsAtOnce = 128;  // that share a decoded run

// --- Activations -----------------------------------------------------------------------------

struct PreparedBlock {
  float scale = 0;                   // times 2^-10; NaN if a code is
  std::uint32_t with_remainder = 0;  // a bit for each pair
};

// A row: integers in the order of pairs (pair p of dword j of a block: elements 8j+p and 8j+p+4).
struct PreparedRows {
  std::int16_t* high;     // [rows, cols] 64 x, towards zero
  std::int16_t* low;      // [rows, cols] 512 x - 8 high
  PreparedBlock* blocks;  // [rows, cols/32]
};

// A block's codes as integers, NaN as 0. Returns whether there is a NaN.
HWY_INLINE bool integers_of(const std::uint8_t* codes, std::int16_t* high, std::int16_t* low) {
  const I32 i32;
  const hn::Rebind<std::uint8_t, I32> u8;
  const hn::Rebind<std::int16_t, I32> i16;
  auto nan_seen = hn::MaskFromVec(hn::Zero(i32));
  for (int at = 0; at < 32; at += kLanesF32) {
    const auto given = hn::PromoteTo(i32, hn::LoadU(u8, codes + at));
    const auto nan = hn::Eq(hn::And(given, hn::Set(i32, 0x7F)), hn::Set(i32, 0x7F));
    nan_seen = hn::Or(nan_seen, nan);
    const auto c = hn::IfThenZeroElse(nan, given);
    const auto exponent = hn::And(hn::ShiftRight<3>(c), hn::Set(i32, 15));
    const auto normal = hn::Gt(exponent, hn::Zero(i32));
    const auto digits =
        hn::Or(hn::And(c, hn::Set(i32, 7)), hn::IfThenElseZero(normal, hn::Set(i32, 8)));
    const auto shift = hn::Sub(exponent, hn::IfThenElseZero(normal, hn::Set(i32, 1)));
    const auto magnitude = hn::Shl(digits, shift);  // of 512 x
    const auto sign = hn::ShiftRight<31>(hn::ShiftLeft<24>(c));
    const auto signed_by = [&](auto v) { return hn::Sub(hn::Xor(v, sign), sign); };
    hn::StoreU(hn::DemoteTo(i16, signed_by(hn::ShiftRight<3>(magnitude))), i16, high + at);
    hn::StoreU(hn::DemoteTo(i16, signed_by(hn::And(magnitude, hn::Set(i32, 7)))), i16, low + at);
  }
  return !hn::AllFalse(i32, nan_seen);
}

// The unit of the integers is part of the scale.
HWY_INLINE float prepared_scale(std::uint8_t scale, bool nan) {
  return nan ? e8m0_to_f32(255) : e8m0_to_f32(scale) * 0x1p-10f;
}

PreparedBlock prepare_block(const std::uint8_t* codes, std::uint8_t scale, std::int16_t* high,
                            std::int16_t* low) {
  HWY_ALIGN std::int16_t natural[2][32];
  PreparedBlock block{prepared_scale(scale, integers_of(codes, natural[0], natural[1])), 0};
  const hn::Full128<std::int16_t> eight;
  HWY_ALIGN static constexpr std::uint8_t kOrder[16] = {0, 1, 8,  9,  2, 3, 10, 11,
                                                        4, 5, 12, 13, 6, 7, 14, 15};
  const auto order = hn::BitCast(eight, hn::Load(hn::Full128<std::uint8_t>{}, kOrder));
  for (int k = 0; k < 32; k += 8) {
    hn::StoreU(hn::TableLookupBytes(hn::Load(eight, natural[0] + k), order), eight, high + k);
    const auto rest = hn::TableLookupBytes(hn::Load(eight, natural[1] + k), order);
    hn::StoreU(rest, eight, low + k);
    const hn::Full128<std::int32_t> pairs;
    std::uint8_t mask[8];
    hn::StoreMaskBits(pairs, hn::Ne(hn::BitCast(pairs, rest), hn::Zero(pairs)), mask);
    block.with_remainder |= std::uint32_t{mask[0]} << (k / 2);
  }
  return block;
}

PreparedRows prepare_rows(Context& context, const Q8Rows& x, std::int64_t rows, std::int64_t cols) {
  const std::int64_t n_blocks = rows * cols / 32;
  const auto integer_bytes = static_cast<std::size_t>(rows * cols) * sizeof(std::int16_t);
  std::byte* memory =
      Scratch::take(2 * integer_bytes + static_cast<std::size_t>(n_blocks) * sizeof(PreparedBlock));
  const PreparedRows prepared{reinterpret_cast<std::int16_t*>(memory),
                              reinterpret_cast<std::int16_t*>(memory + integer_bytes),
                              reinterpret_cast<PreparedBlock*>(memory + 2 * integer_bytes)};
  constexpr std::int64_t kBlocksWorthAThread = 2048;
  context.parallel_for(n_blocks, kBlocksWorthAThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      prepared.blocks[b] = prepare_block(x.codes + 32 * b, x.scales[b], prepared.high + 32 * b,
                                         prepared.low + 32 * b);
    }
  });
  return prepared;
}

// --- Weights ---------------------------------------------------------------------------------

// A run of blocks of a column group, decoded.
struct Tile {
  HWY_ALIGN std::int16_t pairs[kBlocksOfRun][kPairs][kVectors][2 * kLanesF32];  // 16 w
  HWY_ALIGN float scales[kBlocksOfRun][kVectors][kLanesF32];
};

// The pairs of eight codes a lane: pairs[p] has code p in the low and code p + 4 in the high half.
HWY_INLINE void decode_pairs(VU32 codes, VI16 (&pairs)[4]) {
  const I16 i16;
  const U16 u16;
  const auto words = hn::BitCast(u16, codes);
#if HWY_TARGET == HWY_AVX3
  // A lookup takes five bits; the fifth is the next code's, so the table is there twice.
  HWY_ALIGN static constexpr std::int16_t kTable[32] = {
      0, 8, 16, 24, 32, 48, 64, 96, 0, -8, -16, -24, -32, -48, -64, -96,
      0, 8, 16, 24, 32, 48, 64, 96, 0, -8, -16, -24, -32, -48, -64, -96};
  const __m512i table = hn::Load(i16, kTable).raw;
  pairs[0] = VI16{_mm512_permutexvar_epi16(words.raw, table)};
  pairs[1] = VI16{_mm512_permutexvar_epi16(hn::ShiftRight<4>(words).raw, table)};
  pairs[2] = VI16{_mm512_permutexvar_epi16(hn::ShiftRight<8>(words).raw, table)};
  pairs[3] = VI16{_mm512_permutexvar_epi16(hn::ShiftRight<12>(words).raw, table)};
#else
  HWY_ALIGN static constexpr std::int8_t kTable[16] = {0, 8,  16,  24,  32,  48,  64,  96,
                                                       0, -8, -16, -24, -32, -48, -64, -96};
  const hn::ScalableTag<std::int8_t> i8;
  const auto table = hn::LoadDup128(i8, kTable);
  const auto nibbles = hn::Set(u16, 0x0F0F);
  const auto even = hn::TableLookupBytes(table, hn::BitCast(i8, hn::And(words, nibbles)));
  const auto odd =
      hn::TableLookupBytes(table, hn::BitCast(i8, hn::And(hn::ShiftRight<4>(words), nibbles)));
  pairs[0] = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(i16, even)));
  pairs[1] = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(i16, odd)));
  pairs[2] = hn::ShiftRight<8>(hn::BitCast(i16, even));
  pairs[3] = hn::ShiftRight<8>(hn::BitCast(i16, odd));
#endif
}

void decode_tile(const Fp4View& w, std::int64_t column, int n_columns, std::int64_t first_block,
                 int n_blocks, Tile& tile) {
  const std::int64_t row_bytes = w.cols / 2, row_blocks = w.cols / 32;
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t from = column + std::min(v * kLanesF32, n_columns - 1);
    const int n_valid = std::max(1, std::min(kLanesF32, n_columns - v * kLanesF32));
    decode_scales(w.scales + from * row_blocks + first_block, row_blocks, n_valid, n_blocks,
                  tile.scales[0][v], kColumns);
    LaneRows rows(w.codes + from * row_bytes + 16 * first_block, row_bytes);
    HWY_ALIGN std::uint8_t copy[kLanesF32 * 16 * kBlocksOfRun];
    if (n_valid < kLanesF32) {
      rows = padded_rows(rows.part[0], row_bytes, n_valid, 16 * n_blocks, copy);
    }
    const std::int64_t next = first_block + kPrefetchRuns * kBlocksOfRun;
    const std::uint8_t* far = w.codes + from * row_bytes + 16 * next;
    if (next >= row_blocks) far += (kColumns - 1) * row_bytes;
    for (int block = 0; block < n_blocks; ++block) {
      const std::uint8_t* line = far + block % 4 * (kLanesF32 / 4) * row_bytes + block / 4 * 64;
#pragma GCC unroll 4
      for (int i = 0; i < kLanesF32 / 4; ++i) {
        __builtin_prefetch(line, 0, 2);
        line += row_bytes;
      }
      VU32 dwords[4];
      load_dwords(rows, dwords);
      rows.advance(16);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        VI16 pairs[4];
        decode_pairs(dwords[j], pairs);
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) hn::Store(pairs[p], I16{}, tile.pairs[block][4 * j + p][v]);
      }
    }
  }
}

// --- Products --------------------------------------------------------------------------------

// sum + both products of each lane's pairs.
HWY_INLINE VI32 add_products(VI32 sum, VI16 a, VI16 b) {
#if HWY_TARGET == HWY_AVX3
  return VI32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  VI32 unused = hn::Undefined(I32{});
  return hn::ReorderWidenMulAccumulate(I32{}, a, b, sum, unused);
#else
  const I32 i32;
  const auto low = [&](VI16 v) {
    return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(i32, v)));
  };
  const auto high = [&](VI16 v) { return hn::ShiftRight<16>(hn::BitCast(i32, v)); };
  return hn::Add(sum, hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b))));
#endif
}

HWY_INLINE VI16 broadcast_pair(const std::int16_t* pair) {
  std::int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return hn::BitCast(I16{}, hn::Set(I32{}, both));
}

// Prepared rows from the first block of a run on, and their sums.
struct RowsOfRun {
  const std::int16_t* high;  // rows `stride` apart
  const std::int16_t* low;
  const PreparedBlock* blocks;  // rows stride / 32 apart
  std::int64_t stride;
  float* sums;  // [rows, kColumns]
};

// kRows rows by a tile. Few rows have several sums each, so that products do not wait for each
// other.
template <int kRows>
HWY_INLINE void multiply(const Tile& tile, int n_blocks, const RowsOfRun& rows) {
  constexpr int kSums = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  const F32 f32;
  const I16 i16;
  const std::int64_t stride = rows.stride;
  const std::int16_t* x[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) x[r] = rows.high + r * stride;
  for (int block = 0; block < n_blocks; ++block) {
    VI32 dots[kRows][kVectors][kSums];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (int i = 0; i < kSums; ++i) dots[r][v][i] = hn::Zero(I32{});
      }
    }
#pragma GCC unroll 16
    for (int pair = 0; pair < kPairs; ++pair) {
      VI16 w[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) w[v] = hn::Load(i16, tile.pairs[block][pair][v]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const VI16 elements = broadcast_pair(x[r] + 2 * pair);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          dots[r][v][pair % kSums] = add_products(dots[r][v][pair % kSums], w[v], elements);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) x[r] = opaque(x[r] + 32);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (int i = 1; i < kSums; ++i) dots[r][v][0] = hn::Add(dots[r][v][0], dots[r][v][i]);
      }
      const PreparedBlock& x_block = rows.blocks[r * (stride / 32) + block];
      if (HWY_UNLIKELY(x_block.with_remainder != 0)) {
        VI32 more[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) more[v] = hn::Zero(I32{});
        for (std::uint32_t left = x_block.with_remainder; left != 0; left &= left - 1) {
          const int pair = __builtin_ctz(left);
          const VI16 rest = broadcast_pair(rows.low + r * stride + 32 * block + 2 * pair);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            more[v] = add_products(more[v], hn::Load(i16, tile.pairs[block][pair][v]), rest);
          }
        }
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          dots[r][v][0] = hn::Add(dots[r][v][0], hn::ShiftRight<3>(more[v]));
        }
      }
      const VF32 x_scale = hn::Set(f32, x_block.scale);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const VF32 scale = hn::Mul(x_scale, hn::Load(f32, tile.scales[block][v]));
        float* sum = rows.sums + r * kColumns + v * kLanesF32;
        const VF32 dot = hn::ConvertTo(f32, dots[r][v][0]);
        hn::Store(hn::MulAdd(dot, scale, hn::Load(f32, sum)), f32, sum);
      }
    }
  }
}

#if HWY_TARGET == HWY_AVX3
constexpr int kRowsOfTile = 8;
#else
constexpr int kRowsOfTile = 4;
#endif

template <int kRows>
void multiply_rows(const Tile& tile, int n_blocks, RowsOfRun rows, int n_rows) {
  while (n_rows >= kRows) {
    multiply<kRows>(tile, n_blocks, rows);
    rows.high += kRows * rows.stride;
    rows.low += kRows * rows.stride;
    rows.blocks += kRows * (rows.stride / 32);
    rows.sums += kRows * kColumns;
    n_rows -= kRows;
  }
  if constexpr (kRows > 1) multiply_rows<kRows / 2>(tile, n_blocks, rows, n_rows);
}

// Up to kRowsAtOnce rows by a column group.
void multiply_group(const MatmulFp4Q8Args& a, const PreparedRows& x, std::int64_t first_row,
                    int n_rows, std::int64_t column) {
  Tile tile;
  HWY_ALIGN float sums[kRowsAtOnce][kColumns];
  const int n_columns = static_cast<int>(std::min<std::int64_t>(kColumns, a.w.rows - column));
  const std::int64_t row_blocks = a.w.cols / 32;
  std::memset(sums, 0, static_cast<std::size_t>(n_rows) * sizeof sums[0]);
  for (std::int64_t first = 0; first < row_blocks; first += kBlocksOfRun) {
    const int n_blocks = static_cast<int>(std::min<std::int64_t>(kBlocksOfRun, row_blocks - first));
    decode_tile(a.w, column, n_columns, first, n_blocks, tile);
    const std::int64_t block = first_row * row_blocks + first;
    const RowsOfRun rows{x.high + 32 * block, x.low + 32 * block, x.blocks + block, a.w.cols,
                         sums[0]};
    multiply_rows<kRowsOfTile>(tile, n_blocks, rows, n_rows);
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v * kLanesF32 < n_columns; ++v) {
      store_columns(a.out, hn::Load(F32{}, sums[r] + v * kLanesF32), first_row + r,
                    column + v * kLanesF32, std::min(kLanesF32, n_columns - v * kLanesF32));
    }
  }
}

// --- Few rows --------------------------------------------------------------------------------
//
// A product with few rows is bound by reading the weights, and by decoding them if that is not
// simple. Here a weight stays a byte, 2 w + 12, and an activation is two signed digits of 8 bits,
// 64 x = 256 h + l: then the dot product is (256 sum(w h) + sum(w l) - 12 sum(64 x)) in units of
// 2^-7. Each weight is used for all rows while it is in a register.

// Four elements in a lane of 32 bits: 8 j, 8 j + 2, 8 j + 4 and 8 j + 6, then the odd ones.
struct FewBlock {
  std::int8_t high[32], low[32];  // digits
  float scale = 0;                // times 2^-10; NaN if a code is
  std::int32_t offset = 0;        // 12 sum(64 x)
  std::int32_t rest_offset = 0;   // 12 sum(rest)
  std::int32_t has_rest = 0;
};
struct FewRows {
  FewBlock* blocks;   // [rows, cols/32]
  std::int8_t* rest;  // [rows, cols] 512 x - 8 * 64 x, in the same order
};

FewBlock prepare_few_block(const std::uint8_t* codes, std::uint8_t scale, std::int8_t* rest) {
  HWY_ALIGN std::int16_t high[32];
  HWY_ALIGN std::int16_t low[32];
  FewBlock block;
  block.scale = prepared_scale(scale, integers_of(codes, high, low));
  for (int i = 0; i < 32; ++i) {
    const int k = 8 * (i / 8) + 2 * (i % 4) + i / 4 % 2;
    const int digit = (high[k] + 128) >> 8;
    block.high[i] = static_cast<std::int8_t>(digit);
    block.low[i] = static_cast<std::int8_t>(high[k] - 256 * digit);
    rest[i] = static_cast<std::int8_t>(low[k]);
    block.offset += 12 * high[k];
    block.rest_offset += 12 * low[k];
    block.has_rest |= low[k];
  }
  return block;
}

FewRows prepare_few_rows(const Q8Rows& x, std::int64_t rows, std::int64_t cols) {
  const std::int64_t n_blocks = rows * cols / 32;
  const auto block_bytes = static_cast<std::size_t>(n_blocks) * sizeof(FewBlock);
  std::byte* memory = Scratch::take(block_bytes + static_cast<std::size_t>(rows * cols));
  const FewRows prepared{reinterpret_cast<FewBlock*>(memory),
                         reinterpret_cast<std::int8_t*>(memory + block_bytes)};
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    prepared.blocks[b] = prepare_few_block(x.codes + 32 * b, x.scales[b], prepared.rest + 32 * b);
  }
  return prepared;
}

HWY_INLINE VI32 broadcast_four(const std::int8_t* from) {
  std::int32_t four;
  std::memcpy(&four, from, sizeof four);
  return hn::Set(I32{}, four);
}

// Sum of a block, in units of 2^-7, with the weights' offset in it. Weights are 0 to 24.
class FewDot {
 public:
#if HWY_TARGET == HWY_AVX3
  HWY_INLINE FewDot() : high_(hn::Zero(I32{})), low_(hn::Zero(I32{})) {}
  HWY_INLINE void add(VU8 w, const std::int8_t* high, const std::int8_t* low) {
    high_ = VI32{_mm512_dpbusd_epi32(high_.raw, w.raw, broadcast_four(high).raw)};
    low_ = VI32{_mm512_dpbusd_epi32(low_.raw, w.raw, broadcast_four(low).raw)};
  }
  HWY_INLINE void end_of_half() {}
  HWY_INLINE VI32 value() const { return hn::Add(hn::ShiftLeft<8>(high_), low_); }

 private:
  VI32 high_, low_;
#elif HWY_TARGET == HWY_AVX2
  HWY_INLINE FewDot() : sum_(hn::Zero(I32{})), high_(hn::Zero(I16{})), low_(hn::Zero(I16{})) {}
  // Four of these stay within 16 bits: 4 * 2 * 24 * 128.
  HWY_INLINE void add(VU8 w, const std::int8_t* high, const std::int8_t* low) {
    const auto products = [&](const std::int8_t* x) {
      return VI16{_mm256_maddubs_epi16(w.raw, broadcast_four(x).raw)};
    };
    high_ = hn::Add(high_, products(high));
    low_ = hn::Add(low_, products(low));
  }
  HWY_INLINE void end_of_half() {
    const __m256i highs = _mm256_madd_epi16(high_.raw, _mm256_set1_epi16(256));
    const __m256i lows = _mm256_madd_epi16(low_.raw, _mm256_set1_epi16(1));
    sum_ = hn::Add(sum_, hn::Add(VI32{highs}, VI32{lows}));
    high_ = low_ = hn::Zero(I16{});
  }
  HWY_INLINE VI32 value() const { return sum_; }

 private:
  VI32 sum_;
  VI16 high_, low_;
#else
  HWY_INLINE FewDot() : sum_(hn::Zero(I32{})) {}
  HWY_INLINE void add(VU8 w, const std::int8_t* high, const std::int8_t* low) {
    const I32 i32;
    for (int i = 0; i < 4; ++i) {
      const VI32 weight = hn::And(
          hn::BitCast(i32, hn::ShiftRightSame(hn::BitCast(U32{}, w), 8 * i)), hn::Set(i32, 255));
      sum_ = hn::Add(sum_, hn::Mul(weight, hn::Set(i32, 256 * high[i] + low[i])));
    }
  }
  HWY_INLINE void end_of_half() {}
  HWY_INLINE VI32 value() const { return sum_; }

 private:
  VI32 sum_;
#endif
};

// even: elements 0, 2, 4, 6 of each lane's eight, as 2 w + 12; odd: the others.
HWY_INLINE void decode_bytes(VU32 codes, VU8& even, VU8& odd) {
  HWY_ALIGN static constexpr std::uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                        12, 11, 10, 9,  8,  6,  4,  0};
  const VU8 table = hn::LoadDup128(U8{}, kTable);
  const VU32 nibbles = hn::Set(U32{}, 0x0F0F0F0F);
  even = hn::TableLookupBytes(table, hn::BitCast(U8{}, hn::And(codes, nibbles)));
  odd = hn::TableLookupBytes(table, hn::BitCast(U8{}, hn::And(hn::ShiftRight<4>(codes), nibbles)));
}

// sum(w rest) of a block and a row. The block is decoded again: this is rare.
HWY_NOINLINE VI32 rest_of(const LaneRows& w, const std::int8_t* rest, std::int32_t rest_offset) {
  static constexpr std::int8_t kNone[4] = {};
  VU32 dwords[4];
  load_dwords(w, dwords);
  FewDot dot;
  for (int j = 0; j < 4; ++j) {
    VU8 even, odd;
    decode_bytes(dwords[j], even, odd);
    dot.add(even, kNone, rest + 8 * j);
    dot.add(odd, kNone, rest + 8 * j + 4);
    if (j % 2 == 1) dot.end_of_half();
  }
  return hn::Sub(dot.value(), hn::Set(I32{}, rest_offset));
}

// kRows rows by the columns of one vector.
template <int kRows>
void multiply_few(const MatmulFp4Q8Args& a, const FewRows& x, std::int64_t first_row,
                  std::int64_t column) {
  const F32 f32;
  const I32 i32;
  const std::int64_t row_bytes = a.w.cols / 2, row_blocks = a.w.cols / 32;
  const std::uint8_t* w_scales = a.w.scales + column * row_blocks;
  const FewBlock* x_blocks = x.blocks + first_row * row_blocks;
  LaneRows w(a.w.codes + column * row_bytes, row_bytes);
  HWY_ALIGN float scales[16][kLanesF32];
  VF32 sums[kRows];
  for (VF32& sum : sums) sum = hn::Zero(f32);
  for (std::int64_t block = 0; block < row_blocks; ++block) {
    if (block % 16 == 0) {
      const auto n = static_cast<int>(std::min<std::int64_t>(16, row_blocks - block));
      decode_scales(w_scales + block, row_blocks, kLanesF32, n, scales[0], kLanesF32);
    }
    // The same bytes of the next columns, a quarter of the lanes a time.
    const std::uint8_t* ahead = w.part[0] + (kLanesF32 + block % 4 * (kLanesF32 / 4)) * row_bytes;
#pragma GCC unroll 4
    for (int i = 0; i < kLanesF32 / 4; ++i) __builtin_prefetch(ahead + i * row_bytes, 0, 2);
    VU32 dwords[4];
    load_dwords(w, dwords);
    FewDot dots[kRows];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      VU8 even, odd;
      decode_bytes(dwords[j], even, odd);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const FewBlock& b = x_blocks[r * row_blocks + block];
        dots[r].add(even, b.high + 8 * j, b.low + 8 * j);
        dots[r].add(odd, b.high + 8 * j + 4, b.low + 8 * j + 4);
        if (j % 2 == 1) dots[r].end_of_half();
      }
    }
    const VF32 w_scale = hn::Load(f32, scales[block % 16]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const FewBlock& b = x_blocks[r * row_blocks + block];
      VI32 dot = hn::ShiftLeft<3>(hn::Sub(dots[r].value(), hn::Set(i32, b.offset)));
      if (HWY_UNLIKELY(b.has_rest != 0)) {
        const std::int8_t* rest = x.rest + ((first_row + r) * row_blocks + block) * 32;
        dot = hn::Add(dot, rest_of(w, rest, b.rest_offset));
      }
      const VF32 scale = hn::Mul(hn::Set(f32, b.scale), w_scale);
      sums[r] = hn::MulAdd(hn::ConvertTo(f32, dot), scale, sums[r]);
    }
    w.advance(16);
  }
  for (int r = 0; r < kRows; ++r) store_columns(a.out, sums[r], first_row + r, column, kLanesF32);
}

constexpr int kFewRows = 4;

// Up to kFewRows rows by the columns of one vector.
void multiply_few_rows(const MatmulFp4Q8Args& a, const FewRows& x, std::int64_t column) {
  switch (a.rows) {
    case 1:
      return multiply_few<1>(a, x, 0, column);
    case 2:
      return multiply_few<2>(a, x, 0, column);
    case 3:
      return multiply_few<3>(a, x, 0, column);
    default:
      return multiply_few<4>(a, x, 0, column);
  }
}

// Multiply-adds worth another thread.
constexpr std::int64_t kWorthAThread = 1 << 19;

void matmul_fp4_q8(Context& context, const MatmulFp4Q8Args& a) {
  if (a.rows == 0) return;
  // Whole vectors of columns by few rows; what is left, and many rows, by tiles.
  const std::int64_t n_few = a.rows <= kFewRows ? a.w.rows / kLanesF32 : 0;
  if (n_few > 0) {
    const FewRows x = prepare_few_rows(a.x, a.rows, a.w.cols);
    const std::int64_t grain = kWorthAThread / (a.rows * a.w.cols * kLanesF32);
    context.parallel_for(n_few, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t v = begin; v < end; ++v) multiply_few_rows(a, x, v * kLanesF32);
    });
  }
  const std::int64_t first = n_few * kLanesF32;
  if (first == a.w.rows) return;
  const PreparedRows x = prepare_rows(context, a.x, a.rows, a.w.cols);
  const std::int64_t n_groups = (a.w.rows - first + kColumns - 1) / kColumns;
  const std::int64_t grain = kWorthAThread / (a.rows * a.w.cols * kColumns);
  context.parallel_for(n_groups, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < a.rows; row += kRowsAtOnce) {
      const int n_rows = static_cast<int>(std::min<std::int64_t>(kRowsAtOnce, a.rows - row));
      for (std::int64_t group = begin; group < end; ++group) {
        multiply_group(a, x, row, n_rows, first + group * kColumns);
      }
    }
  });
}

}  // namespace

void use_matmul_fp4(KernelTable& table) { table.matmul_fp4_q8 = matmul_fp4_q8; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_matmul_fp4(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_matmul_fp4, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
