#include "kernels/hyper_connection.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(HyperConnection);

constexpr std::int64_t kStreams = 4, kNumbers = 24;
constexpr std::int64_t kCoefficients = 2 * kStreams + kStreams * kStreams;

// pre, post and comb of each row after each other: [rows, 24].
std::vector<float> side_by_side(std::int64_t rows, const std::vector<float>& pre,
                                const std::vector<float>& post, const std::vector<float>& comb) {
  std::vector<float> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    out.insert(out.end(), pre.begin() + row * 4, pre.begin() + row * 4 + 4);
    out.insert(out.end(), post.begin() + row * 4, post.begin() + row * 4 + 4);
    out.insert(out.end(), comb.begin() + row * 16, comb.begin() + row * 16 + 16);
  }
  return out;
}

std::vector<float> coefficients(const std::vector<float>& m, const std::vector<float>& scale,
                                const std::vector<float>& base) {
  const std::int64_t rows = static_cast<std::int64_t>(m.size()) / kNumbers;
  Context context(1);
  Guarded<float> pre(rows * 4), post(rows * 4), comb(rows * 16);
  hc_coefficients_scalar(context, {.m = m.data(),
                                   .rows = rows,
                                   .n_streams = kStreams,
                                   .scale = scale.data(),
                                   .base = base.data(),
                                   .sinkhorn_iterations = 20,
                                   .eps = 1e-6f,
                                   .pre = pre.data(),
                                   .post = post.data(),
                                   .comb = comb.data()});
  EXPECT_TRUE(pre.intact() && post.intact() && comb.intact());
  return side_by_side(rows, pre.values(), post.values(), comb.values());
}

// The formulas of spec section 5.2 in f64.
std::vector<double> exact_coefficients(const double* m, const std::vector<float>& scale,
                                       const std::vector<float>& base) {
  const auto logit = [&](std::size_t i, std::size_t part) {
    return m[i] * double{scale[part]} + double{base[i]};
  };
  std::vector<double> out;
  for (std::size_t i = 0; i < 4; ++i) out.push_back(1 / (1 + std::exp(-logit(i, 0))) + 1e-6);
  for (std::size_t i = 4; i < 8; ++i) out.push_back(2 / (1 + std::exp(-logit(i, 1))));
  double c[4][4];
  for (std::size_t i = 0; i < 16; ++i) c[i / 4][i % 4] = std::exp(logit(8 + i, 2));
  const auto divide_rows = [&](double before, double after) {
    for (auto& row : c) {
      const double sum = row[0] + row[1] + row[2] + row[3] + before;
      for (double& v : row) v = v / sum + after;
    }
  };
  const auto divide_columns = [&] {
    for (int j = 0; j < 4; ++j) {
      const double sum = c[0][j] + c[1][j] + c[2][j] + c[3][j] + 1e-6;
      for (auto& row : c) row[j] /= sum;
    }
  };
  divide_rows(0, 1e-6);
  divide_columns();
  for (int iteration = 1; iteration < 20; ++iteration) {
    divide_rows(1e-6, 0);
    divide_columns();
  }
  for (const auto& row : c) out.insert(out.end(), row, row + 4);
  return out;
}

TEST_P(HyperConnection, coefficients_are_the_golden_ones) {
  const auto file = unit_file("sinkhorn");
  const golden::Tensor mixes = file.tensor("mixes");
  const std::vector<float> ours =
      coefficients(mixes.values, file.tensor("scale").values, file.tensor("base").values);
  const std::vector<float> golden =
      side_by_side(mixes.rows(), file.tensor("pre").values, file.tensor("post").values,
                   file.tensor("comb").values);
  ASSERT_EQ(ours.size(), golden.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], golden[i], 5e-7 * std::fabs(golden[i])) << i;
  }
}

// Spec appendix A.4, printed with 7 (pre, post) and 6 (comb) digits.
TEST_P(HyperConnection, published_coefficients) {
  std::vector<float> m = {.3f, -.2f, .1f, .5f, -.4f, .2f, 0, .6f}, base;
  for (int i = 0; i < 16; ++i) m.push_back(static_cast<float>(7 * i % 11 - 5) / 4);
  for (int i = 0; i < 24; ++i) base.push_back(static_cast<float>(5 * i % 7 - 3) / 10);
  const std::vector<float> expected = {
      .46257117f, .5249802f, .51249844f, .5124984f, .9900004f, 1.1292726f, .9500416f, 1.0897578f,
      .060763f,   .261687f,  .040660f,   .636889f,  .451545f,  .071728f,   .302159f,  .174568f,
      .142028f,   .611676f,  .191387f,   .054908f,  .345663f,  .054909f,   .465793f,  .133634f};
  const std::vector<float> ours = coefficients(m, {.5f, .8f, 1.2f}, base);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], expected[i], i < 8 ? 2e-7 : 6e-7) << i;
  }
}

TEST_P(HyperConnection, comb_is_doubly_stochastic) {
  Rng rng(30);
  const std::vector<float> ours =
      coefficients(rng.normals(50 * kNumbers), {1, 1, 1}, rng.normals(kNumbers));
  for (std::size_t row = 0; row < 50; ++row) {
    const float* comb = ours.data() + row * kCoefficients + 8;
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(comb[4 * i] + comb[4 * i + 1] + comb[4 * i + 2] + comb[4 * i + 3], 1, 1e-4);
      EXPECT_NEAR(comb[i] + comb[4 + i] + comb[8 + i] + comb[12 + i], 1, 1e-5);
    }
  }
}

TEST_P(HyperConnection, mix_is_exact_to_the_rounding_of_its_coefficients) {
  Rng rng(31);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t dim : {3, 32, 130, 640}) {
    const std::int64_t width = kStreams * dim, rows = 9;
    const std::vector<float> h = rng.bf16_normals(rows * width), base = rng.normals(kNumbers);
    const std::vector<float> scale = {0.9f, 1.1f, 1.4f};
    std::vector<float> fn = rng.normals(kNumbers * width);
    for (float& v : fn) v /= std::sqrt(static_cast<float>(width));
    const std::vector<float> ours = expect_row_invariant(
        rows, kCoefficients, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
          Guarded<float> pre(n * 4), post(n * 4), comb(n * 16);
          k.hc_mix(context, {.h = h.data() + first * width,
                             .rows = n,
                             .n_streams = kStreams,
                             .dim = dim,
                             .fn = {fn.data(), kNumbers, width},
                             .scale = scale.data(),
                             .base = base.data(),
                             .sinkhorn_iterations = 20,
                             .eps = 1e-6f,
                             .norm_eps = 1e-20f,
                             .pre = pre.data(),
                             .post = post.data(),
                             .comb = comb.data()});
          EXPECT_TRUE(pre.intact() && post.intact() && comb.intact());
          const auto all = side_by_side(n, pre.values(), post.values(), comb.values());
          std::copy(all.begin(), all.end(), out);
        });
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* v = h.data() + row * width;
      double square = 0, m[kNumbers] = {};
      for (std::int64_t c = 0; c < width; ++c) square += double{v[c]} * double{v[c]};
      const double root = 1 / std::sqrt(square / static_cast<double>(width));
      for (std::int64_t i = 0; i < kNumbers; ++i) {
        for (std::int64_t c = 0; c < width; ++c) {
          m[i] += double{fn[static_cast<std::size_t>(i * width + c)]} * double{v[c]};
        }
        m[i] *= root;
      }
      const std::vector<double> exact = exact_coefficients(m, scale, base);
      double largest = 0;  // of the logits and their parts
      for (std::size_t i = 0; i < kNumbers; ++i) {
        const double part = m[i] * double{scale[i < 4 ? 0 : i < 8 ? 1 : 2]};
        largest = std::max({largest, std::fabs(part), std::fabs(part + double{base[i]})});
      }
      // A logit has been rounded as sum, mean, root, reciprocal, product with it, with the scale,
      // sum with the base: 7 times u of its magnitude. A sigmoid hands that on as relative error,
      // a softmax that of two; exponentials, quotients and normalisations add a few u.
      const double u = 0x1p-24, logit = 7 * u * largest;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        EXPECT_NEAR(ours[static_cast<std::size_t>(row) * kCoefficients + i], exact[i],
                    (i < 8 ? logit + 4 * u : 2 * logit + 12 * u) * exact[i])
            << dim << " " << i;
      }
    }
  }
}

TEST_P(HyperConnection, collapse_and_expand_follow_their_formulas) {
  Rng rng(32);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t dim : {1, 7, 33, 128}) {
    for (const bool rounded : {false, true}) {
      const std::int64_t rows = 35, width = kStreams * dim;
      const std::vector<float> h = rng.bf16_normals(rows * width), y = rng.bf16_normals(rows * dim);
      const std::vector<float> a = rng.normals(rows * 4), comb = rng.normals(rows * 16);
      const std::vector<float> collapsed = expect_row_invariant(
          rows, dim, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            k.hc_collapse(context, {.h = h.data() + first * width,
                                    .weights = a.data() + first * 4,
                                    .rows = n,
                                    .n_streams = kStreams,
                                    .dim = dim,
                                    .out = out,
                                    .round_bf16 = rounded});
          });
      const std::vector<float> expanded = expect_row_invariant(
          rows, width, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
            std::copy_n(h.data() + first * width, n * width, out);
            k.hc_expand(context, {.y = y.data() + first * dim,
                                  .post = a.data() + first * 4,
                                  .comb = comb.data() + first * 16,
                                  .rows = n,
                                  .n_streams = kStreams,
                                  .dim = dim,
                                  .h = out,
                                  .round_bf16 = rounded});
          });
      const double half_ulp = rounded ? 0x1p-8 : 0x1p-24;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t c = 0; c < dim; ++c) {
          const auto stream = [&](std::int64_t s) {
            return double{h[static_cast<std::size_t>(row * width + s * dim + c)]};
          };
          const auto at = [&](const std::vector<float>& v, std::int64_t i) {
            return double{v[static_cast<std::size_t>(i)]};
          };
          double sum = 0, size = 0;
          for (std::int64_t s = 0; s < 4; ++s) {
            sum += at(a, row * 4 + s) * stream(s);
            size += std::fabs(at(a, row * 4 + s) * stream(s));
          }
          EXPECT_NEAR(at(collapsed, row * dim + c), sum,
                      half_ulp * std::fabs(sum) * 1.01 + 8 * 0x1p-24 * size);
          for (std::int64_t j = 0; j < 4; ++j) {
            double mixed = at(a, row * 4 + j) * at(y, row * dim + c), mixed_size = std::fabs(mixed);
            for (std::int64_t i = 0; i < 4; ++i) {  // over the first index: the source stream
              mixed += at(comb, row * 16 + i * 4 + j) * stream(i);
              mixed_size += std::fabs(at(comb, row * 16 + i * 4 + j) * stream(i));
            }
            EXPECT_NEAR(at(expanded, row * width + j * dim + c), mixed,
                        half_ulp * std::fabs(mixed) * 1.01 + 10 * 0x1p-24 * mixed_size);
          }
        }
      }
    }
  }
}

TEST_P(HyperConnection, a_pass_is_its_parts_one_after_the_other) {
  Rng rng(88);
  for (int trial = 0; trial < 60; ++trial) {
    const std::int64_t s = trial % 6 == 5 ? 1 + rng.below(5) : 4, n = s * (2 + s);
    const std::int64_t dim = trial % 5 == 4 ? 1 + rng.below(60) : 16 * (1 + rng.below(12));
    const std::int64_t rows = 1 + rng.below(30);
    const bool rounded = rng.below(2) == 0, expands = rng.below(3) != 0;
    const std::vector<float> h = rng.bf16_normals(rows * s * dim), y = rng.bf16_normals(rows * dim);
    const std::vector<float> fn = rng.normals(n * s * dim), base = rng.normals(n);
    const std::vector<float> scale = rng.normals(3), pre = rng.normals(rows * s);
    const std::vector<float> post = rng.normals(rows * s), comb = rng.normals(rows * s * s);
    const std::vector<Bf16> norm = rng.bf16_weights(dim);

    // Streams, collapsed, normed, pre, post, comb, one after the other.
    const auto run = [&](int threads, bool whole) {
      Context context(threads);
      const KernelTable& k = tested_kernels();
      Guarded<float> streams(rows * s * dim), collapsed(rows * dim), normed(rows * dim);
      Guarded<float> next_pre(rows * s), posts(rows * s), combs(rows * s * s);
      std::copy(h.begin(), h.end(), streams.data());
      std::copy(post.begin(), post.end(), posts.data());
      std::copy(comb.begin(), comb.end(), combs.data());
      const HcExpandArgs expand{.y = expands ? y.data() : nullptr,
                                .post = posts.data(),
                                .comb = combs.data(),
                                .rows = rows,
                                .n_streams = s,
                                .dim = dim,
                                .h = streams.data(),
                                .round_bf16 = rounded};
      HcMixArgs mix{.fn = {fn.data(), n, s * dim},
                    .scale = scale.data(),
                    .base = base.data(),
                    .sinkhorn_iterations = 3,
                    .eps = 1e-6f,
                    .norm_eps = 1e-20f,
                    .pre = next_pre.data(),
                    .post = posts.data(),
                    .comb = combs.data()};
      if (whole) {
        k.hc_pass(context, {.expand = expand,
                            .weights = pre.data(),
                            .norm = norm.data(),
                            .collapsed = collapsed.data(),
                            .normed = normed.data(),
                            .mix = mix});
      } else {
        if (expands) k.hc_expand(context, expand);
        k.hc_collapse(context, {.h = streams.data(),
                                .weights = pre.data(),
                                .rows = rows,
                                .n_streams = s,
                                .dim = dim,
                                .out = collapsed.data(),
                                .round_bf16 = rounded});
        k.rms_norm(context, {.x = collapsed.data(),
                             .rows = rows,
                             .dim = dim,
                             .x_stride = dim,
                             .weight = norm.data(),
                             .eps = 1e-20f,
                             .out = normed.data(),
                             .out_stride = dim,
                             .round_bf16 = rounded});
        mix.h = streams.data();
        mix.rows = rows;
        mix.n_streams = s;
        mix.dim = dim;
        k.hc_mix(context, mix);
      }
      std::vector<float> all;
      for (auto* part : {&streams, &collapsed, &normed, &next_pre, &posts, &combs}) {
        EXPECT_TRUE(part->intact());
        const std::vector<float> values = part->values();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const std::vector<float> expected = by_scalar_kernels([&] { return run(1, false); });
    for (int threads = 1; threads <= 4; ++threads) {
      const std::vector<float> ours = run(threads, true);
      EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0)
          << "trial " << trial << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace cairn::kernels::test
