// FP8 weights by Q8 activations in f32.
//
// A product of two E4M3 values is exact in f32, so a fused multiply-add has the bits of a product
// and a sum, and a lane that adds a column's 32 products in their order follows matmul.h on every
// instruction set. An E4M3 code becomes an f16 by a shift: sign, then exponent and digits one place
// lower, which is the value times 2^-8 (subnormals too); the activations are prepared times 2^8, so
// products are what they are. Only the NaN code would become a number, and is put right apart.
//
// A thread decodes a group of columns for a run of blocks into its first-level cache, as f16, or as
// f32 where enough rows will use it, and gives each row its turn, its elements broadcast.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/scratch.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_fp8_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/column_group_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace {

constexpr int kBlocksOfRun = 4;  // decoded at a time
constexpr int kVectors = 2;      // of a column group: at most the 32 columns that share a scale
constexpr int kColumns = kVectors * kLanesF32;
constexpr int kRowsAtOnce = 128;  // that share a decoded run

using F16 = hn::Rebind<hwy::float16_t, F32>;

// --- Activations -----------------------------------------------------------------------------

// f32 values times 2^8, [rows, cols].
const float* prepare_rows(Context& context, const Q8Rows& x, std::int64_t rows, std::int64_t cols) {
  auto* values = reinterpret_cast<float*>(
      Scratch::take(static_cast<std::size_t>(rows * cols) * sizeof(float)));
  const F32 f32;
  const hn::Rebind<std::uint8_t, F32> u8;
  const hn::Rebind<std::uint16_t, F32> u16;
  constexpr std::int64_t kBlocksWorthAThread = 4096;
  context.parallel_for(
      rows * cols / 32, kBlocksWorthAThread, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = 32 * begin; i < 32 * end; i += kLanesF32) {
          const auto code = hn::PromoteTo(u16, hn::LoadU(u8, x.codes + i));
          const hn::Rebind<std::int16_t, F32> i16;
          const auto moved = hn::ShiftRight<1>(hn::BitCast(i16, hn::ShiftLeft<8>(code)));
          const auto number = hn::And(hn::BitCast(u16, moved), hn::Set(u16, 0xBF80));
          const auto is_nan = hn::Eq(hn::And(code, hn::Set(u16, 0x7F)), hn::Set(u16, 0x7F));
          const auto bits = hn::IfThenElse(is_nan, hn::Set(u16, 0x7E00), number);
          const auto small = hn::PromoteTo(f32, hn::BitCast(F16{}, bits));
          hn::Store(hn::Mul(small, hn::Set(f32, 0x1p16f)), f32, values + i);
        }
      });
  return values;
}

// --- Weights ---------------------------------------------------------------------------------

// Decoded elements of a block lie in the order in which they are found (decode_block).
#if HWY_ARCH_X86
constexpr int place_of(int k) { return 4 * (k % 16 / 2) + 2 * (k % 2) + k / 16; }
#else
constexpr int place_of(int k) { return (k & ~3) | ((k & 1) << 1) | ((k >> 1) & 1); }
#endif

struct Tile16 {
  HWY_ALIGN std::uint16_t values[kBlocksOfRun][kVectors][32][kLanesF32];  // f16, times 2^-8
};
struct Tile32 {
  HWY_ALIGN float values[kBlocksOfRun][kVectors][32][kLanesF32];
};

// Puts NaN where the codes are. Returns nothing to do in all but broken checkpoints.
HWY_NOINLINE void restore_nan(const LaneRows& rows, int n_blocks, int v, Tile16& tile) {
  for (int block = 0; block < n_blocks; ++block) {
    for (int lane = 0; lane < kLanesF32; ++lane) {
      for (int k = 0; k < 32; ++k) {
        if ((rows.part[lane / 4][lane % 4 * rows.stride + 32 * block + k] & 0x7F) != 0x7F) continue;
        tile.values[block][v][place_of(k)][lane] = 0x7E00;
      }
    }
  }
}

// Twice a code without its sign is 254 for NaN and less for numbers: the largest so far.
HWY_INLINE VU8 largest_code(VU8 largest, VU8 codes) {
  return hn::Max(largest, hn::Add(codes, codes));
}
HWY_INLINE bool has_nan(VU8 largest) {
  return !hn::AllFalse(U8{}, hn::Eq(largest, hn::Set(U8{}, 254)));
}

// f16 of the codes in the upper bytes.
HWY_INLINE hn::Vec<U16> f16_of(hn::Vec<U16> codes) {
  const auto moved = hn::BitCast(U16{}, hn::ShiftRight<1>(hn::BitCast(I16{}, codes)));
  return hn::And(moved, hn::Set(U16{}, 0xBF80));
}

#if HWY_ARCH_X86

// 32 bytes of row `row`, in 512 bits those of row `row + 8` as well: first halves, second halves.
HWY_INLINE VU8 load_block_rows(const LaneRows& rows, int row) {
  const auto load = [&](int r, int half) {
    const std::uint8_t* at = rows.part[r / 4] + r % 4 * rows.stride + 16 * half;
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
#if HWY_TARGET == HWY_AVX3
  const auto both = [&](int half) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load(row, half)), load(row + 8, half), 1);
  };
  return VU8{_mm512_inserti64x4(_mm512_castsi256_si512(both(0)), both(1), 1)};
#else
  return VU8{_mm256_inserti128_si256(_mm256_castsi128_si256(load(row, 0)), load(row, 1), 1)};
#endif
}

// The next 32 elements of each lane as f16, element k at out[place_of(k)]: a transposition of 8x8
// words. Returns largest_code of them and `largest`.
HWY_INLINE VU8 decode_block(LaneRows& rows, std::uint16_t (*out)[kLanesF32], VU8 largest) {
  const U16 u16;
  const U32 u32;
  const U64 u64;
  hn::Vec<U16> row[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) {
    const VU8 codes = load_block_rows(rows, r);
    largest = largest_code(largest, codes);
    row[r] = hn::BitCast(u16, codes);
  }
  VU32 two[8];  // of words 0 to 3 (even places) and 4 to 7
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    two[r] = hn::BitCast(u32, hn::InterleaveLower(u16, row[r], row[r + 1]));
    two[r + 1] = hn::BitCast(u32, hn::InterleaveUpper(u16, row[r], row[r + 1]));
  }
  hn::Vec<U64> four[8];  // [rows 0 to 3, rows 4 to 7][words 2 i and 2 i + 1]
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    four[r] = hn::BitCast(u64, hn::InterleaveLower(u32, two[r], two[r + 2]));
    four[r + 1] = hn::BitCast(u64, hn::InterleaveUpper(u32, two[r], two[r + 2]));
    four[r + 2] = hn::BitCast(u64, hn::InterleaveLower(u32, two[r + 1], two[r + 3]));
    four[r + 3] = hn::BitCast(u64, hn::InterleaveUpper(u32, two[r + 1], two[r + 3]));
  }
#pragma GCC unroll 8
  for (int word = 0; word < 8; ++word) {
    const auto low = four[word / 2], high = four[4 + word / 2];
    const auto codes = hn::BitCast(u16, word % 2 == 0 ? hn::InterleaveLower(u64, low, high)
                                                      : hn::InterleaveUpper(u64, low, high));
    hn::Store(f16_of(hn::ShiftLeft<8>(codes)), u16, out[4 * word]);
    hn::Store(f16_of(codes), u16, out[4 * word + 2]);
  }
  rows.advance(32);
  return largest;
}

#else

HWY_INLINE VU8 decode_block(LaneRows& rows, std::uint16_t (*out)[kLanesF32], VU8 largest) {
  HWY_ALIGN static constexpr std::uint8_t kOrder[16] = {0, 1, 4, 5, 8,  9,  12, 13,
                                                        2, 3, 6, 7, 10, 11, 14, 15};
  const auto order = hn::LoadDup128(U8{}, kOrder);
  const auto low_then_high = [&](hn::Vec<U16> v) {
    return hn::BitCast(U16{}, hn::TableLookupBytes(hn::BitCast(U8{}, v), order));
  };
  for (int half = 0; half < 2; ++half) {
    VU32 dwords[4];
    load_dwords(rows, dwords);
    rows.advance(16);
    for (int j = 0; j < 4; ++j) {
      largest = largest_code(largest, hn::BitCast(U8{}, dwords[j]));
      const auto words = hn::BitCast(U16{}, dwords[j]);
      hn::StoreU(low_then_high(f16_of(hn::ShiftLeft<8>(words))), U16{}, out[16 * half + 4 * j]);
      hn::StoreU(low_then_high(f16_of(words)), U16{}, out[16 * half + 4 * j + 2]);
    }
  }
  return largest;
}

#endif

void decode_tile(const Fp8View& w, std::int64_t column, int n_columns, std::int64_t first_block,
                 int n_blocks, Tile16& tile) {
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t from = column + std::min(v * kLanesF32, n_columns - 1);
    const int n_valid = std::max(1, std::min(kLanesF32, n_columns - v * kLanesF32));
    LaneRows rows(w.codes + from * w.cols + 32 * first_block, w.cols);
    HWY_ALIGN std::uint8_t copy[kLanesF32 * 32 * kBlocksOfRun];
    if (n_valid < kLanesF32) {
      rows = padded_rows(rows.part[0], w.cols, n_valid, 32 * n_blocks, copy);
    }
    const LaneRows begin = rows;
    VU8 largest = hn::Zero(U8{});
    // The next run, or that of the next columns, a quarter of the lanes a time.
    const std::uint8_t* ahead = begin.part[0] + 32 * kBlocksOfRun;
    if (32 * (first_block + kBlocksOfRun) >= w.cols) ahead += (kColumns - 1) * w.cols;
    for (int block = 0; block < n_blocks; ++block) {
#pragma GCC unroll 4
      for (int i = 0; i < kLanesF32 / 4; ++i) {
        const std::uint8_t* at = ahead + (block * (kLanesF32 / 4) + i) * w.cols;
        __builtin_prefetch(at, 0, 2);
        __builtin_prefetch(at + 64, 0, 2);
      }
      largest = decode_block(rows, tile.values[block][v], largest);
    }
    if (HWY_UNLIKELY(has_nan(largest))) restore_nan(begin, n_blocks, v, tile);
  }
}

void widen_tile(const Tile16& from, int n_blocks, Tile32& to) {
  const std::int64_t n = std::int64_t{n_blocks} * kVectors * 32 * kLanesF32;
  const auto* in = reinterpret_cast<const hwy::float16_t*>(from.values);
  auto* out = reinterpret_cast<float*>(to.values);
  for (std::int64_t i = 0; i < n; i += kLanesF32) {
    hn::Store(hn::PromoteTo(F32{}, hn::Load(F16{}, in + i)), F32{}, out + i);
  }
}

// --- Products --------------------------------------------------------------------------------

// Rows from the first block of a run on, and their sums.
struct RowsOfRun {
  const float* x;              // rows `stride` apart
  const std::uint8_t* scales;  // rows stride / 32 apart
  std::int64_t stride;
  float* sums;  // [rows, kColumns]
};

// kRows rows by a tile. w_scales: of the tile's blocks.
template <int kRows>
HWY_INLINE void multiply(const Tile32& tile, const std::uint8_t* w_scales, int n_blocks,
                         const RowsOfRun& rows) {
  const F32 f32;
  const std::int64_t stride = rows.stride;
  const float* x[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) x[r] = rows.x + r * stride;
  for (int block = 0; block < n_blocks; ++block) {
    VF32 dots[kRows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dots[r][v] = hn::Zero(f32);
    }
#pragma GCC unroll 32
    for (int k = 0; k < 32; ++k) {
      VF32 w[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) w[v] = hn::Load(f32, tile.values[block][v][place_of(k)]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const VF32 element = hn::Set(f32, x[r][k]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) dots[r][v] = hn::MulAdd(w[v], element, dots[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) x[r] = opaque(x[r] + 32);
    const float w_scale = e8m0_to_f32(w_scales[block]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float x_scale = e8m0_to_f32(rows.scales[r * (stride / 32) + block]);
      const VF32 scale = hn::Set(f32, x_scale * w_scale);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* sum = rows.sums + r * kColumns + v * kLanesF32;
        hn::Store(hn::MulAdd(dots[r][v], scale, hn::Load(f32, sum)), f32, sum);
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
void multiply_rows(const Tile32& tile, const std::uint8_t* w_scales, int n_blocks, RowsOfRun rows,
                   int n_rows) {
  while (n_rows >= kRows) {
    multiply<kRows>(tile, w_scales, n_blocks, rows);
    rows.x += kRows * rows.stride;
    rows.scales += kRows * (rows.stride / 32);
    rows.sums += kRows * kColumns;
    n_rows -= kRows;
  }
  if constexpr (kRows > 1) multiply_rows<kRows / 2>(tile, w_scales, n_blocks, rows, n_rows);
}

// Up to kRowsAtOnce rows by up to kColumns columns.
void multiply_group(const MatmulFp8Q8Args& a, const float* x, std::int64_t first_row, int n_rows,
                    std::int64_t column, int n_columns) {
  Tile16 narrow;
  Tile32 wide;
  HWY_ALIGN float sums[kRowsAtOnce][kColumns];
  const std::int64_t row_blocks = a.w.cols / 32;
  std::memset(sums, 0, static_cast<std::size_t>(n_rows) * sizeof sums[0]);
  for (std::int64_t first = 0; first < row_blocks; first += kBlocksOfRun) {
    const int n_blocks = static_cast<int>(std::min<std::int64_t>(kBlocksOfRun, row_blocks - first));
    const std::uint8_t* w_scales = a.w.scales + column / 32 * row_blocks + first;
    decode_tile(a.w, column, n_columns, first, n_blocks, narrow);
    const std::int64_t block = first_row * row_blocks + first;
    const RowsOfRun rows{x + 32 * block, a.x.scales + block, a.w.cols, sums[0]};
    widen_tile(narrow, n_blocks, wide);
    multiply_rows<kRowsOfTile>(wide, w_scales, n_blocks, rows, n_rows);
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
// A product with few rows is bound by reading the weights: a block is decoded to f16 in the cache
// and converted as it is loaded, at once for all rows.

constexpr int kFewRows = 4;
#if HWY_TARGET == HWY_AVX3
constexpr int kFewVectors = 1;
#else
constexpr int kFewVectors = 2;  // as many sums as a multiply-add is long, or nearly
#endif
constexpr int kFewColumns = kFewVectors * kLanesF32;

// kRows rows by kFewColumns columns.
template <int kRows>
void multiply_few(const MatmulFp8Q8Args& a, const float* x, std::int64_t column) {
  const F32 f32;
  const std::int64_t cols = a.w.cols, row_blocks = cols / 32;
  const std::uint8_t* w_scales = a.w.scales + column / 32 * row_blocks;
  LaneRows w[kFewVectors] = {{a.w.codes + column * cols, cols}
#if HWY_TARGET != HWY_AVX3
                             ,
                             {a.w.codes + (column + kLanesF32) * cols, cols}
#endif
  };
  VU8 largest = hn::Zero(U8{});
  VF32 sums[kRows][kFewVectors];
  for (auto& row : sums) {
    for (VF32& sum : row) sum = hn::Zero(f32);
  }
  for (std::int64_t block = 0; block < row_blocks; ++block) {
    HWY_ALIGN std::uint16_t values[kFewVectors][32][kLanesF32];
    VF32 dots[kRows][kFewVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kFewVectors; ++v) {
      // The same bytes of the next columns, half of the lanes a time.
      const std::uint8_t* ahead = w[v].part[0] + (kFewColumns + block % 2 * (kLanesF32 / 2)) * cols;
#pragma GCC unroll 8
      for (int i = 0; i < kLanesF32 / 2; ++i) __builtin_prefetch(ahead + i * cols, 0, 2);
      largest = decode_block(w[v], values[v], largest);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) dots[r][v] = hn::Zero(f32);
    }
#pragma GCC unroll 32
    for (int k = 0; k < 32; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < kFewVectors; ++v) {
        const auto* at = reinterpret_cast<const hwy::float16_t*>(values[v][place_of(k)]);
        const VF32 weight = hn::PromoteTo(f32, hn::Load(F16{}, at));
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const VF32 element = hn::Set(f32, x[r * cols + 32 * block + k]);
          dots[r][v] = hn::MulAdd(weight, element, dots[r][v]);
        }
      }
    }
    const float w_scale = e8m0_to_f32(w_scales[block]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const VF32 scale = hn::Set(f32, e8m0_to_f32(a.x.scales[r * row_blocks + block]) * w_scale);
#pragma GCC unroll 2
      for (int v = 0; v < kFewVectors; ++v) sums[r][v] = hn::MulAdd(dots[r][v], scale, sums[r][v]);
    }
  }
  if (HWY_UNLIKELY(has_nan(largest))) return multiply_group(a, x, 0, kRows, column, kFewColumns);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kFewVectors; ++v) {
      store_columns(a.out, sums[r][v], r, column + v * kLanesF32, kLanesF32);
    }
  }
}

void multiply_few_rows(const MatmulFp8Q8Args& a, const float* x, std::int64_t column) {
  switch (a.rows) {
    case 1:
      return multiply_few<1>(a, x, column);
    case 2:
      return multiply_few<2>(a, x, column);
    case 3:
      return multiply_few<3>(a, x, column);
    default:
      return multiply_few<4>(a, x, column);
  }
}

// Multiply-adds worth another thread.
constexpr std::int64_t kWorthAThread = 1 << 18;

void matmul_fp8_q8(Context& context, const MatmulFp8Q8Args& a) {
  if (a.rows == 0) return;
  const float* x = prepare_rows(context, a.x, a.rows, a.w.cols);
  // Whole vectors of columns by few rows; what is left, and many rows, by tiles.
  const std::int64_t n_few = a.rows <= kFewRows ? a.w.rows / kFewColumns : 0;
  context.parallel_for(n_few, kWorthAThread / (a.rows * a.w.cols * kFewColumns),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t v = begin; v < end; ++v) {
                           multiply_few_rows(a, x, v * kFewColumns);
                         }
                       });
  const std::int64_t first = n_few * kFewColumns;
  const std::int64_t n_groups = (a.w.rows - first + kColumns - 1) / kColumns;
  context.parallel_for(
      n_groups, kWorthAThread / (a.rows * a.w.cols * kColumns),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; row < a.rows; row += kRowsAtOnce) {
          const int n_rows = static_cast<int>(std::min<std::int64_t>(kRowsAtOnce, a.rows - row));
          for (std::int64_t group = begin; group < end; ++group) {
            const std::int64_t column = first + group * kColumns;
            const auto n = static_cast<int>(std::min<std::int64_t>(kColumns, a.w.rows - column));
            multiply_group(a, x, row, n_rows, column, n);
          }
        }
      });
}

}  // namespace

void use_matmul_fp8(KernelTable& table) { table.matmul_fp8_q8 = matmul_fp8_q8; }

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_matmul_fp8(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_matmul_fp8, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
