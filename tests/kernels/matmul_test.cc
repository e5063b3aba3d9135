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

// The contract of matmul.h, written apart from the kernels.
float by_definition(const Q8& x, std::int64_t row, const Weight& w, std::int64_t column) {
  float sum = 0;
  for (std::int64_t block = 0; block < w.cols / 32; ++block) {
    std::int64_t exact = 0;  // FP4: of 2^-10
    float ascending = 0;     // FP8
    for (std::int64_t k = 32 * block; k < 32 * block + 32; ++k) {
      const float a = e4m3_to_f32(x.codes[static_cast<std::size_t>(row * w.cols + k)]);
      const double product = double{a} * w.code(column, k);
      exact += static_cast<std::int64_t>(product * 0x1p10);
      ascending += static_cast<float>(product);
    }
    const float x_scale =
        e8m0_to_f32(x.scales[static_cast<std::size_t>(row * w.cols / 32 + block)]);
    const auto w_scale = static_cast<float>(w.scale(column, 32 * block));
    sum = w.fp4 ? std::fma(static_cast<float>(exact), x_scale * 0x1p-10f * w_scale, sum)
                : std::fma(ascending, x_scale * w_scale, sum);
  }
  return sum;
}

const std::pair<std::int64_t, std::int64_t> kShapes[] = {
    {1, 32}, {15, 64}, {16, 96}, {17, 32}, {33, 96}, {80, 128}, {64, 1280}, {70, 544}};

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

TEST_P(Matmul, order_inside_a_block_of_fp4_does_not_matter) {
  Rng rng(11);
  const std::int64_t cols = 64;
  Q8 x{rng.e4m3_codes(cols), rng.scales(cols / 32)};
  Weight w = random_weight(rng, true, 32, cols);
  const auto nibble = [&](std::size_t row, std::size_t k) -> std::uint8_t {
    return w.codes[row * cols / 2 + k / 2] >> (4 * (k % 2)) & 15;
  };
  const auto set_nibble = [&](std::size_t row, std::size_t k, std::uint8_t code) {
    std::uint8_t& pair = w.codes[row * cols / 2 + k / 2];
    pair = static_cast<std::uint8_t>((pair & (k % 2 == 0 ? 0xF0 : 0x0F)) | code << (4 * (k % 2)));
  };
  Context context(1);
  std::vector<float> before(32), after(32);
  multiply_q8(context, x, 0, 1, w, {before.data(), 32, false});
  for (int swap = 0; swap < 200; ++swap) {
    const std::int64_t block = 32 * rng.below(cols / 32);
    const auto i = static_cast<std::size_t>(block + rng.below(32));
    const auto j = static_cast<std::size_t>(block + rng.below(32));
    std::swap(x.codes[i], x.codes[j]);
    for (std::size_t row = 0; row < 32; ++row) {
      const std::uint8_t kept = nibble(row, i);
      set_nibble(row, i, nibble(row, j));
      set_nibble(row, j, kept);
    }
  }
  multiply_q8(context, x, 0, 1, w, {after.data(), 32, false});
  EXPECT_EQ(before, after);
}

// Bits equal, or both NaN.
void expect_same(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << what << " at " << i << ": " << a[i] << ", " << b[i];
  }
}

// What checkpoints do not have but bytes can say: any code, NaN among them, at any address, with
// any scale, and activations that are nearly all remainder.
TEST_P(Matmul, any_bytes_give_what_the_definition_gives) {
  Rng rng(15);
  struct Bytes {
    const char* name;
    std::function<std::uint8_t()> code, scale;
  };
  const auto any = [&] { return static_cast<std::uint8_t>(rng.bits()); };
  const auto near_one = [&] { return static_cast<std::uint8_t>(123 + rng.below(8)); };
  const auto number = [&] { return static_cast<std::uint8_t>(rng.bits() & 0xBF); };
  const auto tiny = [&] { return static_cast<std::uint8_t>(rng.bits() & 0xA7); };
  const auto rarely_nan = [&] { return rng.below(500) == 0 ? std::uint8_t{0xFF} : number(); };
  const Bytes kinds[] = {
      {"any code", any, near_one},
      {"NaN here and there", rarely_nan, near_one},
      {"any scale", number, any},
      {"scales of no weight", number, [&] { return static_cast<std::uint8_t>(rng.below(2)); }},
      {"scales that overflow", number,
       [&] { return static_cast<std::uint8_t>(250 + rng.below(5)); }},
      {"small activations", tiny, near_one}};
  std::int64_t n_nan = 0, n_numbers = 0;
  for (const Bytes& kind : kinds) {
    for (const bool fp4 : {false, true}) {
      for (const auto& [rows, cols] : kShapes) {
        const std::int64_t n = 5, unaligned = 1 + rng.below(15);
        std::vector<std::uint8_t> x(static_cast<std::size_t>(unaligned + n * cols)), x_scales,
            w(static_cast<std::size_t>(unaligned + rows * cols)), w_scales;
        for (auto& code : x) code = kind.code();
        for (auto& code : w) code = fp4 ? any() : kind.code();
        for (std::int64_t i = 0; i < unaligned + n * cols / 32; ++i)
          x_scales.push_back(kind.scale());
        for (std::int64_t i = 0; i < unaligned + rows * cols / 32; ++i)
          w_scales.push_back(kind.scale());
        const auto multiply = [&] {
          Context context(2);
          Guarded<float> y(n * rows);
          const Q8Rows q{x.data() + unaligned, x_scales.data() + unaligned};
          const MatmulOut out{y.data(), rows, false};
          const std::uint8_t* codes = w.data() + unaligned;
          const std::uint8_t* scales = w_scales.data() + unaligned;
          if (fp4) {
            tested_kernels().matmul_fp4_q8(
                context, {.x = q, .rows = n, .w = {codes, scales, rows, cols}, .out = out});
          } else {
            tested_kernels().matmul_fp8_q8(
                context, {.x = q, .rows = n, .w = {codes, scales, rows, cols}, .out = out});
          }
          EXPECT_TRUE(y.intact());
          return y.values();
        };
        const std::vector<float> y = multiply();
        for (const float v : y) (std::isnan(v) ? n_nan : n_numbers) += 1;
        expect_same(y, by_scalar_kernels(multiply), kind.name);
      }
    }
  }
  std::printf("seed 15: %lld NaN, %lld numbers\n", static_cast<long long>(n_nan),
              static_cast<long long>(n_numbers));
  EXPECT_GT(n_nan, 1000);
  EXPECT_GT(n_numbers, 10000);
}

// The same with activations that are not quantised, for both formats of weights.
TEST_P(Matmul, any_bytes_by_plain_activations_give_what_the_definition_gives) {
  Rng rng(17);
  for (const bool fp4 : {false, true}) {
    for (const auto& [rows, cols] : kShapes) {
      Weight w = random_weight(rng, fp4, rows, cols);
      for (auto& code : w.codes) code = static_cast<std::uint8_t>(rng.bits());
      for (auto& scale : w.scales) scale = static_cast<std::uint8_t>(rng.bits());
      const std::vector<float> x = rng.normals(5 * cols);
      const auto multiply = [&] {
        Context context(2);
        Guarded<float> y(5 * rows);
        multiply_f32(context, x, 0, 5, w, {y.data(), w.rows, false});
        EXPECT_TRUE(y.intact());
        return y.values();
      };
      expect_same(multiply(), by_scalar_kernels(multiply), "any bytes");
    }
  }
}

TEST_P(Matmul, no_rows_are_nothing_to_do) {
  Rng rng(18);
  Context context(1);
  for (const bool fp4 : {false, true}) {
    const Weight w = random_weight(rng, fp4, 64, 64);
    const Q8 x{rng.e4m3_codes(64), rng.scales(2)};
    float untouched = 7;
    multiply_q8(context, x, 0, 0, w, {&untouched, w.rows, false});
    multiply_f32(context, rng.normals(64), 0, 0, w, {&untouched, w.rows, false});
    EXPECT_EQ(untouched, 7);
  }
}

// More rows than share one pass over the weights, and every number of rows that a tile is made of.
TEST_P(Matmul, many_rows_are_as_each_alone) {
  Rng rng(16);
  const std::int64_t cols = 96, columns = 45;
  for (const bool fp4 : {false, true}) {
    const Weight w = random_weight(rng, fp4, columns, cols);
    const Q8 x{rng.e4m3_codes(300 * cols), rng.scales(300 * cols / 32)};
    Context context(2);
    std::vector<float> alone(300 * columns);
    for (std::int64_t row = 0; row < 300; ++row) {
      multiply_q8(context, x, row, 1, w, {alone.data() + row * columns, columns, false});
    }
    for (const std::int64_t n : {300, 129, 128, 127, 23, 13, 12, 11, 8, 7, 5, 4, 3, 2}) {
      std::vector<float> together(static_cast<std::size_t>(n * columns));
      multiply_q8(context, x, 0, n, w, {together.data(), columns, false});
      alone.resize(together.size());
      EXPECT_EQ(together, alone) << n << " rows";
    }
  }
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
