#include "kernels/cpu/lane_sum.h"

#include <algorithm>
#include <array>

#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

// The comment of lane_sum.h, word for word.
float by_definition(const std::vector<float>& a, const std::vector<float>& b) {
  std::array<double, 8> lane{};
  for (std::size_t k = 0; k < a.size(); ++k) lane[k % 8] += double{a[k]} * double{b[k]};
  return static_cast<float>(((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                            ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

TEST(LaneSum, sums_in_the_stated_order) {
  Rng rng(6);
  bool order_matters = false;
  for (std::int64_t n = 0; n < 200; ++n) {
    // Magnitudes far apart, so that another order would show in f32.
    std::vector<float> a = rng.normals(n), b = rng.normals(n);
    for (float& v : a) v *= std::ldexp(1.0f, static_cast<int>(rng.below(60)) - 30);
    if (n >= 16) a[0] = 1e18f, b[0] = 1, a[8] = -1e18f, b[8] = 1;  // cancels inside lane 0
    EXPECT_EQ(std::bit_cast<std::uint32_t>(dot_f32(a.data(), b.data(), n)),
              std::bit_cast<std::uint32_t>(by_definition(a, b)))
        << n;
    double ascending = 0;
    for (std::size_t k = 0; k < a.size(); ++k) ascending += double{a[k]} * double{b[k]};
    order_matters = order_matters || static_cast<float>(ascending) != by_definition(a, b);
  }
  EXPECT_TRUE(order_matters) << "the inputs cannot tell orders apart";
}

TEST(LaneSum, a_fused_product_gives_the_same_bits) {
  Rng rng(7);
  const std::vector<float> a = rng.normals(333), b = rng.normals(333);
  std::array<double, 8> lane{};
  for (std::size_t k = 0; k < a.size(); ++k)
    lane[k % 8] = std::fma(double{a[k]}, double{b[k]}, lane[k % 8]);
  const auto fused = static_cast<float>(((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                                        ((lane[1] + lane[5]) + (lane[3] + lane[7])));
  EXPECT_EQ(dot_f32(a.data(), b.data(), 333), fused);
}

}  // namespace
}  // namespace cairn::kernels::test
