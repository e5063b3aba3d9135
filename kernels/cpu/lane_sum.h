// The one definition of an f32 sum: eight lanes, ascending, then a fixed tree (see matmul.h).
// Internal to kernels/cpu.
#ifndef CAIRN_KERNELS_CPU_LANE_SUM_H_
#define CAIRN_KERNELS_CPU_LANE_SUM_H_

#include <cstdint>

namespace cairn::kernels {

inline constexpr int kLanes = 8;

inline float sum_lanes(const float* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

inline float dot_f32(const float* a, const float* b, std::int64_t n) {
  float lanes[kLanes] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += a[k + l] * b[k + l];
  }
  for (int l = 0; k < n; ++k, ++l) lanes[l] += a[k] * b[k];
  return sum_lanes(lanes);
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_LANE_SUM_H_
