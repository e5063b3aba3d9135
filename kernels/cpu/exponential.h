// The exponential and what is made of it, with the same bits on every machine and at every vector
// width: polynomials in f64 with one order of separate products and sums, rounded once to f32.
//
// exp: x = (n + r) ln 2 with |r| <= 1/2, 2^r = 1 + r P(r), P of degree 7 (relative error below
// 2^-38, interpolated at Chebyshev nodes). softplus: max(z, 0) + log1p(exp(-|z|)), log1p(e) =
// 2 atanh(e / (2 + e)), the even part of degree 9 in s^2 (below 2^-53). So results are the
// correctly rounded ones, but for about one in 10,000 whose exact value lies that close to the
// middle of two floats: the error is below 0.5001 units of the last place.
//
// exponential_simd.h is the same for vectors.
#ifndef CAIRN_KERNELS_CPU_EXPONENTIAL_H_
#define CAIRN_KERNELS_CPU_EXPONENTIAL_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace cairn::kernels {

inline constexpr double kLog2OfE = 0x1.71547652b82fep0;
// Adding and subtracting it rounds to an integer, which its low bits then hold.
inline constexpr double kRoundingShift = 0x1.8p52;
// Beyond these the result is 0 and infinity in f32.
inline constexpr float kExpLowest = -150.0f, kExpHighest = 90.0f;
// (2^r - 1) / r, ascending powers.
inline constexpr double kExp2Terms[] = {
    0x1.62e42fef9cc69p-1,  0x1.ebfbdff82a734p-3,  0x1.c6b08da70cce3p-5,  0x1.3b2ab70ad2565p-7,
    0x1.5d877598350dep-10, 0x1.4308c7183d6a2p-13, 0x1.00c0e4e15189cp-16, 0x1.63b2d7971923fp-20};
// 2 atanh(s) / s in powers of s^2, |s| <= 1/3.
inline constexpr double kAtanhTerms[] = {
    0x1.0000000000000p+1, 0x1.5555555555aeep-1, 0x1.99999998ca58bp-2, 0x1.2492498161ca5p-2,
    0x1.c71c47af989fdp-3, 0x1.74628d4f43596p-3, 0x1.3aa5e932d3628p-3, 0x1.1659956da410fp-3,
    0x1.94b79523b2fbbp-4, 0x1.6c26693a7c095p-3};

// Not for NaN.
inline double exp_f64(float x) {
  const float clamped = x < kExpLowest ? kExpLowest : x > kExpHighest ? kExpHighest : x;
  const double t = static_cast<double>(clamped) * kLog2OfE;
  const double shifted = t + kRoundingShift;
  const double r = t - (shifted - kRoundingShift);
  double p = kExp2Terms[7];
  for (int i = 6; i >= 0; --i) p = p * r + kExp2Terms[i];
  p = p * r + 1.0;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) +
                               (std::bit_cast<std::uint64_t>(shifted) << 52));
}

inline float exp_f32(float x) { return x != x ? x : static_cast<float>(exp_f64(x)); }

inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

// log(1 + exp(z))
inline float softplus_f32(float z) {
  if (z != z) return z;
  const double e = exp_f64(z > 0.0f ? -z : z);
  const double s = e / (2.0 + e), u = s * s;
  double p = kAtanhTerms[9];
  for (int i = 8; i >= 0; --i) p = p * u + kAtanhTerms[i];
  return static_cast<float>((z > 0.0f ? static_cast<double>(z) : 0.0) + p * s);
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_EXPONENTIAL_H_
