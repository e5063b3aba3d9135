#include "kernels/expert_routing.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

CAIRN_KERNEL_SUITE(ExpertRouting);

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights, biased;
};

Routed routed(const std::vector<float>& logits, const std::vector<float>& bias, std::int64_t active,
              float scale, bool normalise = true) {
  const auto n = static_cast<std::int64_t>(bias.size());
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / n;
  Context context(1);
  Guarded<std::int32_t> ids(rows * active);
  Guarded<float> weights(rows * active), biased(rows * n);
  tested_kernels().route(context, {.logits = logits.data(),
                                   .bias = bias.data(),
                                   .rows = rows,
                                   .n_experts = n,
                                   .n_active = active,
                                   .scale = scale,
                                   .normalise = normalise,
                                   .ids = ids.data(),
                                   .weights = weights.data(),
                                   .biased = biased.data()});
  EXPECT_TRUE(ids.intact() && weights.intact() && biased.intact());
  return {ids.values(), weights.values(), biased.values()};
}

TEST_P(ExpertRouting, agrees_with_the_golden_vectors) {
  const auto file = unit_file("pool_router");
  std::vector<Bf16> gate;
  for (const float w : file.tensor("gate_weight").values) gate.push_back(to_bf16(w));
  const std::vector<float> x = file.tensor("gate_x").values;
  std::vector<float> logits(9 * 8);
  Context context(1);
  tested_kernels().matmul_bf16(context, {.x = x.data(),
                                         .rows = 9,
                                         .x_stride = 128,
                                         .w = {gate.data(), 8, 128},
                                         .out = {logits.data(), 8, false}});
  const Routed r = routed(logits, file.tensor("gate_bias").values, 3, 1.5f);
  const std::vector<std::int64_t> ids = file.integers("gate_ids");
  EXPECT_EQ(std::vector<std::int64_t>(r.ids.begin(), r.ids.end()), ids);
  const std::vector<float> weights = file.tensor("gate_weights").values;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    // An f32 sum of 128 terms in another order, through a root and a quotient.
    EXPECT_NEAR(r.weights[i], weights[i], 4 * 0x1p-24 * (1 + std::sqrt(64.0)));
  }
}

TEST_P(ExpertRouting, chooses_by_biased_and_weighs_by_unbiased_scores) {
  Rng rng(70);
  for (int trial = 0; trial < 100; ++trial) {
    const std::int64_t n = 5 + rng.below(40), active = 1 + rng.below(5), rows = 4;
    std::vector<float> logits = rng.normals(rows * n), bias = rng.normals(n);
    for (float& z : logits) z = std::round(z * 2) * 8;  // ties, and softplus beyond its branch
    for (float& b : bias) b = std::round(b);
    const Routed r = routed(logits, bias, active, 1.5f);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* biased = r.biased.data() + row * n;
      std::vector<std::int32_t> order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return biased[a] > biased[b]; });
      double sum = 0;
      const auto score = [&](std::int32_t id) {
        const double z = double{logits[static_cast<std::size_t>(row * n + id)]};
        return std::sqrt(std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z))));
      };
      for (std::int64_t e = 0; e < n; ++e) {
        const double exact =
            score(static_cast<std::int32_t>(e)) + double{bias[static_cast<std::size_t>(e)]};
        EXPECT_NEAR(biased[e], exact, 4e-7 * (1 + std::fabs(exact)));
      }
      for (std::int64_t i = 0; i < active; ++i) sum += score(order[static_cast<std::size_t>(i)]);
      for (std::int64_t i = 0; i < active; ++i) {
        const auto at = static_cast<std::size_t>(row * active + i);
        EXPECT_EQ(r.ids[at], order[static_cast<std::size_t>(i)]);
        EXPECT_NEAR(r.weights[at], score(r.ids[at]) / sum * 1.5, 1e-6);
      }
    }
  }
}

TEST_P(ExpertRouting, is_row_invariant_and_may_skip_the_normalisation) {
  Rng rng(71);
  const KernelTable& k = tested_kernels();
  const std::int64_t n = 17, active = 4, rows = 23;
  const std::vector<float> logits = rng.normals(rows * n), bias = rng.normals(n);
  expect_row_invariant(rows, active,
                       [&](Context& context, std::int64_t first, std::int64_t count, float* out) {
                         std::vector<std::int32_t> ids(static_cast<std::size_t>(count * active));
                         k.route(context, {.logits = logits.data() + first * n,
                                           .bias = bias.data(),
                                           .rows = count,
                                           .n_experts = n,
                                           .n_active = active,
                                           .ids = ids.data(),
                                           .weights = out});
                       });
  const Routed plain = routed({0.0f, 1.0f, 2.0f}, {0, 0, 0}, 2, 1.0f, /*normalise=*/false);
  EXPECT_NEAR(plain.weights[0], std::sqrt(std::log1p(std::exp(2.0))), 1e-6);
}

TEST_P(ExpertRouting, swiglu_clamps_and_weighs) {
  Rng rng(72);
  const KernelTable& k = tested_kernels();
  for (const std::int64_t dim : {1, 13, 64}) {
    for (const float limit : {0.0f, 1.0f, 10.0f}) {
      for (const bool shared : {false, true}) {
        const std::int64_t rows = 40;
        std::vector<float> gate = rng.normals(rows * dim), up = rng.normals(rows * dim);
        for (float& g : gate) g *= 4;
        for (float& u : up) u *= 4;
        const std::vector<float> weights = rng.normals(rows);
        const std::vector<float> a = expect_row_invariant(
            rows, dim, [&](Context& context, std::int64_t first, std::int64_t n, float* out) {
              k.swiglu(context, {.gate = gate.data() + first * dim,
                                 .up = up.data() + first * dim,
                                 .weights = shared ? nullptr : weights.data() + first,
                                 .rows = n,
                                 .dim = dim,
                                 .limit = limit,
                                 .out = out});
            });
        for (std::int64_t i = 0; i < rows * dim; ++i) {
          const auto at = static_cast<std::size_t>(i);
          double g = double{gate[at]}, u = double{up[at]};
          if (limit > 0) {
            g = std::min(g, double{limit});  // no lower clamp
            u = std::clamp(u, -double{limit}, double{limit});
          }
          const double w = shared ? 1 : double{weights[static_cast<std::size_t>(i / dim)]};
          const double exact = g / (1 + std::exp(-g)) * u * w;
          EXPECT_NEAR(a[at], exact, 6 * 0x1p-24 * std::fabs(exact) + 1e-30);
        }
      }
    }
  }
}

// Every `step`-th bit pattern of f32, infinities and NaN among them.
std::vector<float> dense_sweep(std::uint32_t step) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += step) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return x;
}

// With `up` = 1 the activation is x * sigmoid(x), with no bias the score is sqrt(softplus(x)): what
// every vector version makes of the exponential.
TEST_P(ExpertRouting, has_the_bits_of_the_plain_exponential_everywhere) {
  const std::vector<float> x = dense_sweep(4099);
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0f), none(x.size(), 0.0f);
  const auto results = [&] {
    Context context(1);
    std::vector<float> activated(x.size()), scores(x.size()), weight(1);
    tested_kernels().swiglu(
        context,
        {.gate = x.data(), .up = ones.data(), .rows = 1, .dim = n, .out = activated.data()});
    std::int32_t id = 0;
    tested_kernels().route(context, {.logits = x.data(),
                                     .bias = none.data(),
                                     .rows = 1,
                                     .n_experts = n,
                                     .n_active = 1,
                                     .ids = &id,
                                     .weights = weight.data(),
                                     .biased = scores.data()});
    activated.insert(activated.end(), scores.begin(), scores.end());
    return activated;
  };
  const std::vector<float> expected = by_scalar_kernels(results), ours = results();
  std::int64_t different = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (std::isnan(ours[i]) && std::isnan(expected[i])) continue;
    different += std::bit_cast<std::uint32_t>(ours[i]) != std::bit_cast<std::uint32_t>(expected[i]);
  }
  EXPECT_EQ(different, 0) << "of " << ours.size();
}

}  // namespace
}  // namespace cairn::kernels::test
