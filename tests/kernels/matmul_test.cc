#include "kernels/matmul.h"

#include <algorithm>
#include <numeric>

#include "kernels/kernels.h"
#include "kernels/kv_row.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(Matmul);

std::vector<std::uint8_t> bytes_of(const golden::Tensor& t) {
  std::vector<std::uint8_t> out;
  for (const float v : t.values) out.push_back(static_cast<std::uint8_t>(v));
  return out;
}

// A weight in one of the quantised formats, with its dequantised values.
struct Weight {
  std::int64_t rows = 0, cols = 0;
  bool fp4 = false;
  std::vector<std::uint8_t> codes, scales;
  Fp8View fp8() const { return {codes.data(), scales.data(), rows, cols}; }
  Fp4View fp4_view() const { return {codes.data(), scales.data(), rows, cols}; }
  double code(std::int64_t row, std::int64_t k) const {
    if (!fp4) return double{e4m3_to_f32(codes[static_cast<std::size_t>(row * cols + k)])};
    const std::uint8_t pair = codes[static_cast<std::size_t>(row * (cols / 2) + k / 2)];
    return double{e2m1_to_f32(static_cast<std::uint8_t>(pair >> (4 * (k & 1)) & 15))};
  }
  double scale(std::int64_t row, std::int64_t k) const {
    const std::int64_t scale_row = fp4 ? row : row / 32;
    return double{e8m0_to_f32(scales[static_cast<std::size_t>(scale_row * (cols / 32) + k / 32)])};
  }
  double value(std::int64_t row, std::int64_t k) const { return code(row, k) * scale(row, k); }
};

Weight random_weight(Rng& rng, bool fp4, std::int64_t rows, std::int64_t cols) {
  Weight w{rows, cols, fp4, {}, {}};
  w.codes = fp4 ? std::vector<std::uint8_t>(static_cast<std::size_t>(rows * cols / 2))
                : rng.e4m3_codes(rows * cols);
  if (fp4) {
    for (auto& pair : w.codes) pair = static_cast<std::uint8_t>(rng.bits());
  }
  w.scales = rng.scales((fp4 ? rows : (rows + 31) / 32) * (cols / 32));
  return w;
}

struct Q8 {
  std::vector<std::uint8_t> codes, scales;
};

Q8 quantised(const std::vector<float>& x) {
  Q8 q{std::vector<std::uint8_t>(x.size()), std::vector<std::uint8_t>(x.size() / 32)};
  quantise_q8(x.data(), static_cast<std::int64_t>(x.size()), q.codes.data(), q.scales.data());
  return q;
}

void multiply_q8(Context& context, const Q8& x, std::int64_t first, std::int64_t n, const Weight& w,
                 const MatmulOut& out) {
  const KernelTable& k = tested_kernels();
  const Q8Rows rows{x.codes.data() + first * w.cols, x.scales.data() + first * w.cols / 32};
  if (w.fp4) {
    k.matmul_fp4_q8(context, {.x = rows, .rows = n, .w = w.fp4_view(), .out = out});
  } else {
    k.matmul_fp8_q8(context, {.x = rows, .rows = n, .w = w.fp8(), .out = out});
  }
}

void multiply_f32(Context& context, const std::vector<float>& x, std::int64_t first, std::int64_t n,
                  const Weight& w, const MatmulOut& out) {
  const KernelTable& k = tested_kernels();
  const float* at = x.data() + first * w.cols;
  if (w.fp4) {
    k.matmul_fp4(context, {.x = at, .rows = n, .x_stride = w.cols, .w = w.fp4_view(), .out = out});
  } else {
    k.matmul_fp8(context, {.x = at, .rows = n, .x_stride = w.cols, .w = w.fp8(), .out = out});
  }
}

// The contract of matmul.h: block dots exact, rounded once, scaled, added in ascending order.
float by_definition(const Q8& x, std::int64_t row, const Weight& w, std::int64_t column) {
  float sum = 0;
  for (std::int64_t block = 0; block < w.cols / 32; ++block) {
    // Products of codes are multiples of 2^-19 below 2^18: sums of 32 are exact in 64-bit integers.
    std::int64_t dot = 0;
    for (std::int64_t k = 32 * block; k < 32 * block + 32; ++k) {
      const double a = double{e4m3_to_f32(x.codes[static_cast<std::size_t>(row * w.cols + k)])};
      dot += static_cast<std::int64_t>(a * w.code(column, k) * 0x1p19);
    }
    const float scale = e8m0_to_f32(x.scales[static_cast<std::size_t>(row * w.cols / 32 + block)]) *
                        static_cast<float>(w.scale(column, 32 * block));
    sum += static_cast<float>(static_cast<double>(dot) * 0x1p-19) * scale;
  }
  return sum;
}

const std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 32},  {15, 64},  {16, 96},  {17, 32},
                                                         {33, 96}, {80, 128}, {64, 1280}};

TEST_P(Matmul, golden_products_of_both_formats) {
  const auto file = unit_file("gemm");
  const std::vector<float> x = file.tensor("fp8_x").values;
  for (const bool fp4 : {false, true}) {
    const std::string name = fp4 ? "fp4" : "fp8";
    const Weight w{80, 96, fp4, bytes_of(file.tensor(name + "_w")),
                   bytes_of(file.tensor(name + "_w_scale"))};
    if (fp4) {
      const golden::Tensor dense = file.tensor("fp4_w_dense");
      for (std::int64_t i = 0; i < 80 * 96; ++i) {
        EXPECT_EQ(w.value(i / 96, i % 96), double{dense.values[static_cast<std::size_t>(i)]});
      }
    }
    Context context(2);
    std::vector<float> y(7 * 80);
    multiply_q8(context, quantised(x), 0, 7, w, {y.data(), 80, /*round_bf16=*/true});
    EXPECT_EQ(y, file.tensor(name + "_y_actquant").values);

    multiply_f32(context, x, 0, 7, w, {y.data(), 80, /*round_bf16=*/false});
    const std::vector<float> golden = file.tensor(name + "_y_noquant").values;
    for (std::int64_t i = 0; i < 7 * 80; ++i) {
      double exact = 0, norm = 0;
      for (std::int64_t k = 0; k < 96; ++k) {
        const double term =
            double{x[static_cast<std::size_t>(i / 80 * 96 + k)]} * w.value(i % 80, k);
        exact += term;
        norm += term * term;
      }
      const auto at = static_cast<std::size_t>(i);
      EXPECT_LE(ulps(y[at], static_cast<float>(exact)), 1);
      // An f32 sum of 96 terms in any order: four deviations of its rounding (agreement.h).
      EXPECT_NEAR(y[at], golden[at], 4 * 0x1p-24 * (1 + std::sqrt(48.0)) * std::sqrt(norm));
    }
  }
}

TEST_P(Matmul, quantised_products_follow_the_definition_bit_for_bit) {
  Rng rng(10);
  for (const bool fp4 : {false, true}) {
    for (const auto& [rows, cols] : kShapes) {
      const Weight w = random_weight(rng, fp4, rows, cols);
      const Q8 x{rng.e4m3_codes(5 * cols), rng.scales(5 * cols / 32)};
      const std::vector<float> y = expect_row_invariant(
          5, rows, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            multiply_q8(context, x, first, n, w, {out, w.rows, false});
          });
      for (std::int64_t i = 0; i < 5 * rows; ++i) {
        EXPECT_EQ(y[static_cast<std::size_t>(i)], by_definition(x, i / rows, w, i % rows));
      }
    }
  }
}

TEST_P(Matmul, order_inside_a_block_does_not_matter) {
  Rng rng(11);
  const std::int64_t cols = 64;
  Q8 x{rng.e4m3_codes(cols), rng.scales(cols / 32)};
  Weight w = random_weight(rng, false, 32, cols);
  Context context(1);
  std::vector<float> before(32), after(32);
  multiply_q8(context, x, 0, 1, w, {before.data(), 32, false});
  for (int swap = 0; swap < 200; ++swap) {
    const std::int64_t block = 32 * rng.below(cols / 32);
    const auto i = static_cast<std::size_t>(block + rng.below(32));
    const auto j = static_cast<std::size_t>(block + rng.below(32));
    std::swap(x.codes[i], x.codes[j]);
    for (std::size_t row = 0; row < 32; ++row) {
      std::swap(w.codes[row * cols + i], w.codes[row * cols + j]);
    }
  }
  multiply_q8(context, x, 0, 1, w, {after.data(), 32, false});
  EXPECT_EQ(before, after);
}

TEST_P(Matmul, largest_codes_stay_exact) {
  const std::int64_t cols = 32;
  const Q8 x{std::vector<std::uint8_t>(cols, 0x7E), {127}};
  const Weight w{1, cols, false, std::vector<std::uint8_t>(cols, 0x7E), {127}};
  Context context(1);
  float y = 0;
  multiply_q8(context, x, 0, 1, w, {&y, 1, false});
  EXPECT_EQ(y, 32.0f * 448 * 448);
}

TEST_P(Matmul, unquantised_products_round_once) {
  Rng rng(12);
  for (const bool fp4 : {false, true}) {
    for (const auto& [rows, cols] : kShapes) {
      const Weight w = random_weight(rng, fp4, rows, cols);
      const std::vector<float> x = rng.normals(5 * cols);
      const std::vector<float> y = expect_row_invariant(
          5, rows, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            multiply_f32(context, x, first, n, w, {out, w.rows, false});
          });
      for (std::int64_t i = 0; i < 5 * rows; ++i) {
        double exact = 0, norm = 0;
        for (std::int64_t k = 0; k < cols; ++k) {
          const double term =
              double{x[static_cast<std::size_t>(i / rows * cols + k)]} * w.value(i % rows, k);
          exact += term;
          norm += std::fabs(term);
        }
        // Half an f32 ulp of the result, and what f64 sums can leave (cols * 2^-53 of the terms).
        EXPECT_NEAR(y[static_cast<std::size_t>(i)], exact,
                    0x1p-24 * std::fabs(exact) + 0x1p-53 * static_cast<double>(cols) * norm);
      }
    }
  }
}

// Any number of columns, not multiples of eight only.
TEST_P(Matmul, unquantised_weights_have_tails) {
  Rng rng(13);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t cols : {1, 3, 7, 8, 9, 15, 17, 33, 100, 257}) {
    for (const std::int64_t rows : {1, 16, 19}) {
      const std::vector<Bf16> w = rng.bf16_weights(rows * cols);
      std::vector<float> wide;
      for (const Bf16 v : w) wide.push_back(to_f32(v));
      const std::vector<float> x = rng.normals(4 * cols);
      const std::vector<float> narrow = expect_row_invariant(
          4, rows, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            k.matmul_bf16(context, {.x = x.data() + first * cols,
                                    .rows = n,
                                    .x_stride = cols,
                                    .w = {w.data(), rows, cols},
                                    .out = {out, rows, false}});
          });
      const std::vector<float> f32 = expect_row_invariant(
          4, rows, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            k.matmul_f32(context, {.x = x.data() + first * cols,
                                   .rows = n,
                                   .x_stride = cols,
                                   .w = {wide.data(), rows, cols},
                                   .out = {out, rows, false}});
          });
      EXPECT_EQ(narrow, f32);
      for (std::int64_t i = 0; i < 4 * rows; ++i) {
        double exact = 0, norm = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          const double term = double{x[static_cast<std::size_t>(i / rows * cols + c)]} *
                              double{wide[static_cast<std::size_t>(i % rows * cols + c)]};
          exact += term;
          norm += std::fabs(term);
        }
        EXPECT_NEAR(f32[static_cast<std::size_t>(i)], exact,
                    0x1p-24 * std::fabs(exact) + 0x1p-53 * static_cast<double>(cols) * norm);
      }
    }
  }
}

TEST_P(Matmul, strides_leave_gaps_untouched_and_rounding_is_one) {
  Rng rng(14);
  const KernelTable& k = tested_kernels();
  const std::int64_t cols = 40, rows = 18, x_stride = 47, y_stride = 23, n = 3;
  const std::vector<Bf16> w = rng.bf16_weights(rows * cols);
  const std::vector<float> x = rng.normals(n * x_stride);
  Context context(3);
  Guarded<float> exact(n * y_stride), rounded(n * y_stride);
  const std::uint32_t untouched = std::bit_cast<std::uint32_t>(exact.data()[0]);
  for (Guarded<float>* y : {&exact, &rounded}) {
    k.matmul_bf16(context, {.x = x.data(),
                            .rows = n,
                            .x_stride = x_stride,
                            .w = {w.data(), rows, cols},
                            .out = {y->data(), y_stride, y == &rounded}});
    EXPECT_TRUE(y->intact());
  }
  for (std::int64_t i = 0; i < n * y_stride; ++i) {
    if (i % y_stride < rows) {
      EXPECT_EQ(rounded.data()[i], round_to_bf16(exact.data()[i]));
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(exact.data()[i]), untouched);
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
