#include "kernels/rms_norm.h"

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(RmsNorm);

TEST_P(RmsNorm, agrees_with_exact_arithmetic_and_is_row_invariant) {
  Rng rng(20);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t dim : {1, 7, 8, 9, 64, 129, 1280}) {
    const std::vector<float> x = rng.normals(19 * dim);
    const std::vector<Bf16> w = rng.bf16_weights(dim);
    const std::vector<float> y = expect_row_invariant(
        19, dim, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
          k.rms_norm(context, {.x = x.data() + first * dim,
                               .rows = n,
                               .dim = dim,
                               .x_stride = dim,
                               .weight = w.data(),
                               .eps = 1e-20f,
                               .out = out,
                               .out_stride = dim});
        });
    for (std::int64_t row = 0; row < 19; ++row) {
      double square = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        const double v = double{x[static_cast<std::size_t>(row * dim + i)]};
        square += v * v;
      }
      const double root = 1 / std::sqrt(square / static_cast<double>(dim) + 1e-20);
      for (std::int64_t i = 0; i < dim; ++i) {
        const auto at = static_cast<std::size_t>(row * dim + i);
        const double exact = double{to_f32(w[static_cast<std::size_t>(i)])} * double{x[at]} * root;
        // Roundings: sum and division (halved by the root), epsilon's sum, root, reciprocal, two
        // products.
        EXPECT_NEAR(y[at], exact, 6 * 0x1p-24 * std::fabs(exact));
      }
    }
  }
}

TEST_P(RmsNorm, may_work_in_place_with_strides) {
  Rng rng(21);
  const KernelTable& k = tested_kernels();
  Context context(2);
  const std::int64_t dim = 21, stride = 30, rows = 40;
  const std::vector<float> x = rng.normals(rows * stride);
  const std::vector<Bf16> w = rng.bf16_weights(dim);
  std::vector<float> in_place = x, apart(static_cast<std::size_t>(rows * dim));
  for (const bool alias : {true, false}) {
    k.rms_norm(context, {.x = alias ? in_place.data() : x.data(),
                         .rows = rows,
                         .dim = dim,
                         .x_stride = stride,
                         .weight = w.data(),
                         .eps = 1e-20f,
                         .out = alias ? in_place.data() : apart.data(),
                         .out_stride = alias ? stride : dim,
                         .round_bf16 = true});
  }
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    const std::int64_t row = i / stride, c = i % stride;
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(in_place[at], c < dim ? apart[static_cast<std::size_t>(row * dim + c)] : x[at]);
  }
}

TEST_P(RmsNorm, zero_rows_stay_zero) {
  const KernelTable& k = tested_kernels();
  Context context(1);
  std::vector<float> x(64, 0.0f);
  const std::vector<Bf16> w(64, to_bf16(1.5f));
  k.rms_norm(context, {.x = x.data(),
                       .rows = 1,
                       .dim = 64,
                       .x_stride = 64,
                       .weight = w.data(),
                       .eps = 1e-20f,
                       .out = x.data(),
                       .out_stride = 64});
  EXPECT_EQ(x, std::vector<float>(64, 0.0f));
}

}  // namespace
}  // namespace cairn::kernels::test
