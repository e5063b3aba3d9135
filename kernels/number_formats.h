// Exact conversions between f32 and the narrow formats of the model family
// (spec/architecture.md sections 3.1 to 3.3). Everything here is bit-exact on every machine.
#ifndef CAIRN_KERNELS_NUMBER_FORMATS_H_
#define CAIRN_KERNELS_NUMBER_FORMATS_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/tensor_view.h"

namespace cairn::kernels {

// --- bf16 --------------------------------------------------------------------------------------

inline float to_f32(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

// Nearest, ties to even. NaN stays NaN.
inline Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

inline float round_to_bf16(float x) { return to_f32(to_bf16(x)); }

// --- E8M0: a power-of-two scale, 2^(b-127); 255 is NaN -------------------------------------------

inline float e8m0_to_f32(std::uint8_t b) {
  if (b == 255) return std::bit_cast<float>(0x7FC00000u);
  if (b == 0) return std::bit_cast<float>(0x00400000u);  // 2^-127 is subnormal in f32
  return std::bit_cast<float>(std::uint32_t{b} << 23);
}

// --- E4M3 (fn): 1-4-3, bias 7, no infinities, 0x7F and 0xFF are NaN, largest 448
// ------------------

constexpr float e4m3_to_f32_slow(std::uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7FC00000u);
  float value = exponent == 0 ? static_cast<float>(mantissa) / 512.0f
                              : (1.0f + static_cast<float>(mantissa) / 8.0f);
  for (int e = exponent; e > 7; --e) value *= 2.0f;
  for (int e = exponent; e != 0 && e < 7; ++e) value *= 0.5f;
  return (code & 0x80) ? -value : value;
}

inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    table[static_cast<std::size_t>(code)] = e4m3_to_f32_slow(static_cast<std::uint8_t>(code));
  }
  return table;
}();

inline float e4m3_to_f32(std::uint8_t code) { return kE4m3Values[code]; }

// Nearest, ties to even, saturating at 448. The sign of zero is kept. NaN gives 0x7F or 0xFF.
inline std::uint8_t to_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<std::uint8_t>(sign | 0x7F);
  if (magnitude >= 448.0f) return static_cast<std::uint8_t>(sign | 0x7E);
  // Values below 2^-6 lie on the grid of step 2^-9, all others on 3 mantissa bits. Adding and
  // subtracting 1.5 * 2^23 steps rounds to nearest even in f32 arithmetic.
  if (magnitude < 0.015625f) {
    const float steps = (magnitude * 512.0f + 12582912.0f) - 12582912.0f;
    return static_cast<std::uint8_t>(sign | static_cast<std::uint8_t>(steps));
  }
  std::uint32_t m = std::bit_cast<std::uint32_t>(magnitude);
  m += 0x7FFFFu + ((m >> 20) & 1u);  // keep 3 mantissa bits
  const std::uint32_t code = (m >> 20) - (120u << 3);
  return static_cast<std::uint8_t>(sign | (code > 0x7Eu ? 0x7Eu : code));
}

// --- E2M1 (FP4): bit 3 sign, magnitudes 0 .5 1 1.5 2 3 4 6
// ----------------------------------------

inline constexpr std::array<float, 16> kE2m1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};

inline float e2m1_to_f32(std::uint8_t code) { return kE2m1Values[code & 15]; }

// Nearest, ties to the even code, saturating at 6.
inline std::uint8_t to_e2m1(float x) {
  const float v = std::fabs(x);
  std::uint8_t code = 0;
  if (v > 5.0f) {
    code = 7;
  } else if (v >= 3.5f) {
    code = 6;
  } else if (v > 2.5f) {
    code = 5;
  } else if (v >= 1.75f) {
    code = 4;
  } else if (v > 1.25f) {
    code = 3;
  } else if (v >= 0.75f) {
    code = 2;
  } else if (v > 0.25f) {
    code = 1;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

// --- P2: the smallest power of two that is >= x > 0, as an E8M0 byte, from the bits
// ---------------

inline std::uint8_t ceil_power_of_two_e8m0(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1 : 0));
}

inline constexpr float kInverse448 = std::bit_cast<float>(0x3B124925u);  // f32 of 1/448
inline constexpr float kInverse6 = std::bit_cast<float>(0x3E2AAAABu);    // f32 of 1/6

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_NUMBER_FORMATS_H_
