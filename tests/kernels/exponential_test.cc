// The exponential and softplus against the C library's in f64. That vector versions have the same
// bits is in expert_routing_test.cc.
#include "kernels/cpu/exponential.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cairn::kernels::test {
namespace {

// Distance of a result from the exact value, in units of the last place of f32 there.
double error_in_ulps(float result, double exact) {
  const double size = std::max(std::fabs(exact), 0x1p-126);
  const double ulp = std::exp2(std::floor(std::log2(size)) - 23);
  return std::fabs(static_cast<double>(result) - exact) / ulp;
}

struct Errors {
  double largest = 0;
  std::int64_t not_nearest = 0, n = 0;
};

template <class Ours, class Exact>
Errors errors_over(float from, float to, std::uint32_t step, const Ours& ours, const Exact& exact) {
  Errors errors;
  const auto end = std::bit_cast<std::uint32_t>(to);
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(from); bits < end; bits += step) {
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      const double e = exact(static_cast<double>(x));
      if (e > 0x1.fffffep127) continue;  // infinity in f32
      errors.largest = std::max(errors.largest, error_in_ulps(ours(x), e));
      errors.not_nearest += ours(x) != static_cast<float>(e);
      ++errors.n;
    }
  }
  return errors;
}

TEST(Exponential, is_the_nearest_float_but_for_one_in_ten_thousand) {
  const Errors e = errors_over(
      0x1p-40f, 104.0f, 997, [](float x) { return exp_f32(x); },
      [](double x) { return std::exp(x); });
  EXPECT_GT(e.n, 700000);
  EXPECT_LE(e.largest, 0.5001);
  EXPECT_LE(e.not_nearest, e.n / 10000);
}

TEST(Exponential, softplus_is_the_nearest_float_but_for_one_in_ten_thousand) {
  const Errors e = errors_over(
      0x1p-40f, 100.0f, 997, [](float x) { return softplus_f32(x); },
      [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); });
  EXPECT_GT(e.n, 700000);
  EXPECT_LE(e.largest, 0.5001);
  EXPECT_LE(e.not_nearest, e.n / 10000);
}

TEST(Exponential, has_exact_ends) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
  EXPECT_EQ(exp_f32(89.0f), kInfinity);
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_EQ(exp_f32(-103.0f), 0x1p-149f);  // the smallest there is
  EXPECT_TRUE(std::isnan(exp_f32(std::nanf(""))));
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(sigmoid_f32(-kInfinity), 0.0f);
  EXPECT_EQ(sigmoid_f32(kInfinity), 1.0f);
  EXPECT_EQ(softplus_f32(-kInfinity), 0.0f);
  EXPECT_EQ(softplus_f32(kInfinity), kInfinity);
  EXPECT_EQ(softplus_f32(100.0f), 100.0f);
  EXPECT_TRUE(std::isnan(softplus_f32(std::nanf(""))));
}

// Larger x, no smaller exp: what a softmax relies on.
TEST(Exponential, never_falls) {
  float before = 0;
  for (float x = -104.0f; x < 89.0f; x += 0.0003f) {
    const float e = exp_f32(x);
    ASSERT_GE(e, before) << x;
    before = e;
  }
}

}  // namespace
}  // namespace cairn::kernels::test
