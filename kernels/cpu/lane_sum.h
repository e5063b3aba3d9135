// The one definition of a dot product over f32 operands: eight f64 lanes, lane l summing
// k = l, l+8, l+16, ... in ascending order, then ((0+4)+(2+6)) + ((1+5)+(3+7)), rounded once to f32.
//
// The product of two f32 numbers is exact in f64, so a fused multiply-add gives the same bits as a
// product and a sum, and every instruction set can reproduce them. What f64 costs is small (these
// sums are not the bulk of the model: FP8 and FP4 products are exact by blocks, see matmul.h); what it
// buys is that codes near a rounding boundary do not flip with the noise of an f32 sum.
#ifndef CAIRN_KERNELS_CPU_LANE_SUM_H_
#define CAIRN_KERNELS_CPU_LANE_SUM_H_

#include <cstdint>

namespace cairn::kernels {

inline constexpr int kLanes = 8;

inline float dot_f32(const float* a, const float* b, std::int64_t n) {
  double lanes[kLanes] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lanes[l] += static_cast<double>(a[k + l]) * static_cast<double>(b[k + l]);
    }
  }
  for (int l = 0; k < n; ++k, ++l) {
    lanes[l] += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  }
  return static_cast<float>(((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                            ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])));
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_LANE_SUM_H_
