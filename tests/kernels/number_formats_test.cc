#include "kernels/number_formats.h"

#include "tests/kernels/kernel_rows.h"

namespace cairn::kernels::test {
namespace {

// The nearest of `values` (finite, ascending by code) to x; at a tie the even code.
template <std::size_t N>
float nearest(const std::array<float, N>& values, std::size_t n, float x) {
  const double magnitude = std::fabs(double{x});
  std::size_t best = 0;
  for (std::size_t code = 1; code < n; ++code) {
    const double d = std::fabs(double{values[code]} - magnitude);
    const double least = std::fabs(double{values[best]} - magnitude);
    if (d < least || (d == least && code % 2 == 0)) best = code;
  }
  return std::copysign(values[best], x);
}

TEST(NumberFormats, value_tables_are_the_golden_ones) {
  const auto file = unit_file("formats");
  const auto e4m3 = file.tensor("e4m3_value").values;
  const auto e2m1 = file.tensor("e2m1_value").values;
  const auto exponents = file.integers("e8m0_exponent");
  ASSERT_EQ(e4m3.size(), 256u);
  ASSERT_EQ(e2m1.size(), 16u);
  ASSERT_EQ(exponents.size(), 256u);
  for (int code = 0; code < 256; ++code) {
    const auto i = static_cast<std::size_t>(code);
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value) && std::isnan(e4m3[i]));
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(e4m3[i])) << code;
    }
    if (code < 255) {
      EXPECT_EQ(e8m0_to_f32(static_cast<std::uint8_t>(code)),
                std::ldexp(1.0f, static_cast<int>(exponents[i])))
          << code;
    }
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
  for (std::size_t code = 0; code < 16; ++code) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(e2m1_to_f32(static_cast<std::uint8_t>(code))),
              std::bit_cast<std::uint32_t>(e2m1[code]));
  }
}

TEST(NumberFormats, encoding_gives_the_golden_codes) {
  const auto file = unit_file("formats");
  const auto in8 = file.tensor("e4m3_in").values, rounded8 = file.tensor("e4m3_rounded").values;
  const auto codes8 = file.integers("e4m3_code");
  for (std::size_t i = 0; i < in8.size(); ++i) {
    EXPECT_EQ(to_e4m3(in8[i]), codes8[i]) << in8[i];
    EXPECT_EQ(e4m3_to_f32(to_e4m3(in8[i])), rounded8[i]);
  }
  const auto in4 = file.tensor("e2m1_in").values, rounded4 = file.tensor("e2m1_rounded").values;
  const auto codes4 = file.integers("e2m1_code");
  for (std::size_t i = 0; i < in4.size(); ++i) {
    EXPECT_EQ(to_e2m1(in4[i]), codes4[i]) << in4[i];
    EXPECT_EQ(e2m1_to_f32(to_e2m1(in4[i])), rounded4[i]);
  }
}

TEST(NumberFormats, every_code_encodes_to_itself) {
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    const bool nan = (c & 0x7F) == 0x7F;  // loses its sign
    EXPECT_EQ(to_e4m3(e4m3_to_f32(c)), nan ? 0x7F : c);
    if (code < 16) {
      EXPECT_EQ(to_e2m1(e2m1_to_f32(c)), c);
    }
  }
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Bf16 x{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_f32(x))) {
      EXPECT_TRUE(std::isnan(round_to_bf16(to_f32(x))));
    } else {
      EXPECT_EQ(to_bf16(to_f32(x)).bits, bits);
    }
  }
}

TEST(NumberFormats, encoding_rounds_to_the_nearest_code) {
  std::array<float, 127> e4m3{};
  for (std::size_t code = 0; code < e4m3.size(); ++code) {
    e4m3[code] = e4m3_to_f32(static_cast<std::uint8_t>(code));
  }
  std::array<float, 8> e2m1{};
  for (std::size_t code = 0; code < e2m1.size(); ++code) {
    e2m1[code] = e2m1_to_f32(static_cast<std::uint8_t>(code));
  }
  const auto check = [&](float x) {
    EXPECT_EQ(e4m3_to_f32(to_e4m3(x)), nearest(e4m3, e4m3.size(), x)) << x;
    EXPECT_EQ(e2m1_to_f32(to_e2m1(x)), nearest(e2m1, e2m1.size(), x)) << x;
  };
  Rng rng(1);
  for (int i = 0; i < 4000; ++i)
    check(rng.normal() * std::ldexp(1.0f, static_cast<int>(rng.below(24)) - 13));
  for (std::size_t code = 0; code + 1 < e4m3.size(); ++code) {  // ties and their neighbours
    const float tie = (e4m3[code] + e4m3[code + 1]) / 2;
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      check(x);
      check(-x);
    }
  }
  EXPECT_EQ(to_e4m3(1e30f), 0x7E);
  EXPECT_EQ(to_e4m3(-INFINITY), 0xFE);
  EXPECT_EQ(to_e2m1(INFINITY), 7);
}

TEST(NumberFormats, bf16_rounds_to_nearest_ties_to_even) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // tie, even below
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);  // tie, even above
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3F808001u)).bits, 0x3F81);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7F7FFFFFu)).bits, 0x7F80);  // overflows to infinity
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7F800001u))));
}

// Spec appendix A.1 and A.2.
TEST(NumberFormats, published_ties_and_scale_exponents) {
  const float ties[][2] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                           {2.5f, 2},  {3.5f, 4},  {5, 4}};
  for (const auto& [x, rounded] : ties) EXPECT_EQ(e2m1_to_f32(to_e2m1(x)), rounded) << x;
  const auto exponent = [](float amax, float inverse) {
    return int{ceil_power_of_two_e8m0(amax * inverse)} - 127;
  };
  const std::pair<float, int> q8[] = {{448, 0}, {449, 1}, {1, -8}, {0.4375f, -10}, {6, -6}};
  for (const auto& [amax, k] : q8) EXPECT_EQ(exponent(amax, kInverse448), k) << amax;
  const std::pair<float, int> qm4[] = {{6, 0}, {6.03125f, 1}, {7, 1}, {1, -2}, {0.4375f, -3}};
  for (const auto& [amax, k] : qm4) EXPECT_EQ(exponent(amax, kInverse6), k) << amax;
}

TEST(NumberFormats, scale_is_the_smallest_power_of_two_not_below) {
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) {
    const float x =
        std::fabs(rng.normal()) * std::ldexp(1.0f, static_cast<int>(rng.below(200)) - 100);
    if (x == 0) continue;
    const float scale = e8m0_to_f32(ceil_power_of_two_e8m0(x));
    EXPECT_GE(scale, x);
    EXPECT_LT(scale / 2, x);
  }
  for (int k = -126; k < 128; ++k) {
    EXPECT_EQ(ceil_power_of_two_e8m0(std::ldexp(1.0f, k)), k + 127);  // a power is its own
  }
}

}  // namespace
}  // namespace cairn::kernels::test
