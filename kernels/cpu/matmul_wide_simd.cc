// Products with activations as they are: eight f64 lanes over K (cpu/lane_sum.h).
//
// Activations are widened to f64 once a call. A thread decodes a run of eight columns at a time to
// f32 in its first-level cache, asking for the next run meanwhile, and multiplies a few rows by
// them in registers; what the lanes hold is put away between runs. Eight columns share what a row
// reads from the second-level cache, and as many sums fill the length of a multiply-add.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/scratch.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_wide_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr int kColumns = 8;         // decoded together
constexpr int kRun = 256;           // elements of a column that are decoded at a time
constexpr int kRowsAtOnce = 64;     // that share a decoded run
constexpr std::int64_t kLanes = 8;  // of a sum

using F32 = hn::ScalableTag<float>;
using F64 = hn::CappedTag<double, 8>;
using F32OfF64 = hn::Rebind<float, F64>;
constexpr int kPerVector = static_cast<int>(hn::MaxLanes(F64{}));
constexpr int kVectors = static_cast<int>(kLanes) / kPerVector;

// --- Weights: n elements of a column from element k on, as f32 -------------------------------

void decode(const F32View& w, std::int64_t column, std::int64_t k, std::int64_t n, float* out) {
  std::memcpy(out, w.data + column * w.cols + k, static_cast<std::size_t>(n) * sizeof(float));
}

void decode(const Bf16View& w, std::int64_t column, std::int64_t k, std::int64_t n, float* out) {
  const F32 f32;
  const Bf16* from = w.data + column * w.cols + k;
  const auto step = static_cast<std::int64_t>(hn::Lanes(f32));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(load_bf16(f32, from + i), f32, out + i);
  for (; i < n; ++i) out[i] = to_f32(from[i]);
}

// Times 2^-8: the codes are f16 numbers of that size when shifted (matmul_fp8_simd.cc), and the
// activations are widened times 2^8. n and k are multiples of 32.
void decode(const Fp8View& w, std::int64_t column, std::int64_t k, std::int64_t n, float* out) {
  const F32 f32;
  const hn::CappedTag<std::int16_t, 32> i16;
  const hn::Rebind<std::int8_t, decltype(i16)> i8;
  const hn::RebindToUnsigned<decltype(i16)> u16;
  const hn::Rebind<hwy::float16_t, F32> f16;
  const std::uint8_t* codes = w.codes + column * w.cols + k;
  const std::uint8_t* scales = w.scales + column / 32 * (w.cols / 32) + k / 32;
  HWY_ALIGN hwy::float16_t small[kRun];
  auto largest = hn::Zero(u16);  // code without its sign, at the top
  for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(i16))) {
    const auto signed_code =
        hn::PromoteTo(i16, hn::LoadU(i8, reinterpret_cast<const std::int8_t*>(codes + i)));
    const auto code = hn::BitCast(u16, signed_code);
    largest = hn::Max(largest, hn::ShiftLeft<9>(code));
    hn::Store(hn::And(hn::ShiftLeft<7>(code), hn::Set(u16, 0xBF80)), u16,
              reinterpret_cast<std::uint16_t*>(small + i));
  }
  constexpr int kStep = static_cast<int>(hn::MaxLanes(f32));
  for (std::int64_t block = 0; block < n / 32; ++block) {
    const hwy::float16_t* from = small + 32 * block;
    float* to = out + 32 * block;
    const auto scale = hn::Set(f32, e8m0_to_f32(scales[block]));
#pragma GCC unroll 8
    for (int i = 0; i < 32; i += kStep) {
      hn::Store(hn::Mul(hn::PromoteTo(f32, hn::Load(f16, from + i)), scale), f32, to + i);
    }
    // What is beyond f32 in full size is infinite.
    if (HWY_LIKELY(scales[block] <= 246)) continue;
    for (int i = 0; i < 32; ++i) to[i] = to[i] * 256 / 256;
  }
  if (HWY_LIKELY(hn::AllFalse(u16, hn::Eq(largest, hn::Set(u16, 0xFE00))))) return;
  for (std::int64_t i = 0; i < n; ++i) {
    if ((codes[i] & 0x7F) == 0x7F) out[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

// In f32 arithmetic only: nothing that has to be fast.
void decode(const Fp4View& w, std::int64_t column, std::int64_t k, std::int64_t n, float* out) {
  const std::uint8_t* codes = w.codes + (column * w.cols + k) / 2;
  const std::uint8_t* scales = w.scales + (column * w.cols + k) / 32;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto code = static_cast<std::uint8_t>(codes[i / 2] >> (4 * (i % 2)) & 15);
    out[i] = e2m1_to_f32(code) * e8m0_to_f32(scales[i / 32]);
  }
}

// What decode() leaves out of a weight.
template <class View>
constexpr double kLeftOut = std::is_same_v<View, Fp8View> ? 256 : 1;

// Asks for the run that a column's place decodes next: of the same column, or of the next group's.
template <class Element>
HWY_INLINE void prefetch_run(const Element* data, std::int64_t cols, std::int64_t column,
                             std::int64_t k) {
  k += kRun;
  if (k >= cols) {
    k = 0;
    column += kColumns;
  }
  const auto* at = reinterpret_cast<const char*>(data + column * cols + k);
  constexpr std::int64_t kBytes = kRun * sizeof(Element);
  for (std::int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}
HWY_INLINE const float* data_of(const F32View& w) { return w.data; }
HWY_INLINE const Bf16* data_of(const Bf16View& w) { return w.data; }
HWY_INLINE const std::uint8_t* data_of(const Fp8View& w) { return w.codes; }

// --- Products --------------------------------------------------------------------------------

// Of kColumns columns by the rows that share them.
struct Lanes {
  HWY_ALIGN double of[kRowsAtOnce][kColumns][kLanes];
};
struct Weights {
  HWY_ALIGN float of[kColumns][kRun];
};

// n elements, a multiple of kLanes, of kRows rows by kOf columns. x: the first row's, [kRows] rows
// x_stride apart.
template <int kRows, int kOf>
HWY_INLINE void multiply(const Weights& w, int column, const double* x, std::int64_t x_stride,
                         std::int64_t n, Lanes& lanes, int row) {
  const F64 f64;
  hn::Vec<F64> sums[kRows][kOf][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kOf; ++c) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][c][v] = hn::Load(f64, lanes.of[row + r][column + c] + v * kPerVector);
      }
    }
  }
  for (std::int64_t k = 0; k < n; k += kLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = k + v * kPerVector;
      hn::Vec<F64> weights[kOf];
#pragma GCC unroll 8
      for (int c = 0; c < kOf; ++c) {
        weights[c] = hn::PromoteTo(f64, hn::Load(F32OfF64{}, w.of[column + c] + at));
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto elements = hn::Load(f64, x + r * x_stride + at);
#pragma GCC unroll 8
        for (int c = 0; c < kOf; ++c) {
          sums[r][c][v] = hn::MulAdd(weights[c], elements, sums[r][c][v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kOf; ++c) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(sums[r][c][v], f64, lanes.of[row + r][column + c] + v * kPerVector);
      }
    }
  }
}

void multiply_run(const Weights& w, const double* x, std::int64_t x_stride, int n_rows,
                  std::int64_t n, Lanes& lanes) {
#if HWY_TARGET == HWY_AVX3
  constexpr int kRows = 4, kOf = 4, kOfOne = 8;
#else
  constexpr int kRows = 2, kOf = 2, kOfOne = 4;
#endif
  int row = 0;
  for (; row + kRows <= n_rows; row += kRows) {
    for (int column = 0; column < kColumns; column += kOf) {
      multiply<kRows, kOf>(w, column, x + row * x_stride, x_stride, n, lanes, row);
    }
  }
  for (; row < n_rows; ++row) {
    for (int column = 0; column < kColumns; column += kOfOne) {
      multiply<1, kOfOne>(w, column, x + row * x_stride, x_stride, n, lanes, row);
    }
  }
}

float sum_of(const double (&l)[kLanes]) {
  return static_cast<float>(((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])));
}

// Up to kRowsAtOnce rows by up to kColumns columns. x: f64, rows x_stride apart, zeros after cols.
template <class View>
void multiply_columns(const View& w, std::int64_t column, int n_columns, const double* x,
                      std::int64_t x_stride, std::int64_t first_row, int n_rows,
                      const MatmulOut& out) {
  Weights weights;
  Lanes lanes;
  std::memset(lanes.of, 0, static_cast<std::size_t>(n_rows) * sizeof lanes.of[0]);
  for (std::int64_t k = 0; k < w.cols; k += kRun) {
    const std::int64_t n = std::min<std::int64_t>(kRun, w.cols - k);
    const std::int64_t whole = (n + kLanes - 1) / kLanes * kLanes;
    for (int c = 0; c < kColumns; ++c) {
      if constexpr (!std::is_same_v<View, Fp4View>) {
        prefetch_run(data_of(w), w.cols, column + c, k);
      }
      decode(w, column + std::min(c, n_columns - 1), k, n, weights.of[c]);
      std::fill(weights.of[c] + n, weights.of[c] + whole, 0.0f);  // adds 0, which changes no lane
    }
    multiply_run(weights, x + first_row * x_stride + k, x_stride, n_rows, whole, lanes);
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int c = 0; c < n_columns; ++c) {
      const float sum = sum_of(lanes.of[r][c]);
      out.y[(first_row + r) * out.y_stride + column + c] =
          out.round_bf16 ? kernels::round_to_bf16(sum) : sum;
    }
  }
}

const double* widen_rows(Context& context, const float* x, std::int64_t rows, std::int64_t stride,
                         std::int64_t cols, std::int64_t wide_stride, double factor) {
  auto* wide = reinterpret_cast<double*>(
      Scratch::take(static_cast<std::size_t>(rows * wide_stride) * sizeof(double)));
  context.parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      double* to = wide + row * wide_stride;
      for (std::int64_t k = 0; k < cols; ++k) {
        to[k] = factor * static_cast<double>(x[row * stride + k]);
      }
      std::fill(to + cols, to + wide_stride, 0.0);
    }
  });
  return wide;
}

template <class Args>
void matmul(Context& context, const Args& a) {
  if (a.rows == 0) return;
  const std::int64_t x_stride = (a.w.cols + kLanes - 1) / kLanes * kLanes;
  const double* x = widen_rows(context, a.x, a.rows, a.x_stride, a.w.cols, x_stride,
                               kLeftOut<std::remove_const_t<decltype(a.w)>>);
  constexpr std::int64_t kWorthAThread = 1 << 17;  // multiply-adds
  const std::int64_t grain =
      kWorthAThread / std::max<std::int64_t>(1, a.rows * a.w.cols * kColumns);
  const std::int64_t n_groups = (a.w.rows + kColumns - 1) / kColumns;
  context.parallel_for(n_groups, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const std::int64_t column = group * kColumns;
      const auto n_columns = static_cast<int>(std::min<std::int64_t>(kColumns, a.w.rows - column));
      for (std::int64_t row = 0; row < a.rows; row += kRowsAtOnce) {
        const auto n_rows = static_cast<int>(std::min<std::int64_t>(kRowsAtOnce, a.rows - row));
        multiply_columns(a.w, column, n_columns, x, x_stride, row, n_rows, a.out);
      }
    }
  });
}

void matmul_fp8(Context& context, const MatmulFp8Args& a) { matmul(context, a); }
void matmul_fp4(Context& context, const MatmulFp4Args& a) { matmul(context, a); }
void matmul_bf16(Context& context, const MatmulBf16Args& a) { matmul(context, a); }
void matmul_f32(Context& context, const MatmulF32Args& a) { matmul(context, a); }

}  // namespace

void use_matmul_wide(KernelTable& table) {
  table.matmul_fp8 = matmul_fp8;
  table.matmul_fp4 = matmul_fp4;
  table.matmul_bf16 = matmul_bf16;
  table.matmul_f32 = matmul_f32;
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_matmul_wide(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_matmul_wide, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
