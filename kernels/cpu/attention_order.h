// The order of attention's sums and its limits, which the scalar version and those for vectors have
// in common.
#ifndef CAIRN_KERNELS_CPU_ATTENTION_ORDER_H_
#define CAIRN_KERNELS_CPU_ATTENTION_ORDER_H_

#include <cstdint>

#include "kernels/kv_row.h"

namespace cairn::kernels {

inline constexpr std::int64_t kBlockPlaces = 64;  // list places of one online-softmax step
inline constexpr std::int64_t kDotLanes = 16;
inline constexpr float kFirstMaximum = -1e30f;
// Probabilities below it, relative to the running maximum, count as 0: less than any sum with a 1
// in it can show. It keeps products with values away from subnormal numbers.
inline constexpr float kSmallestWeight = 0x1p-64f;
// Heads of one query that a thread takes at least: it decodes every row for them.
inline constexpr std::int64_t kHeadsPerPiece = 8;

// Whether the product of a value of such a row and a bf16 number is exact in f32, so that it does
// not matter whether a multiply-add rounds once or twice.
constexpr bool products_fit_f32(RowFormat format) { return format != RowFormat::kF32; }

// q . k in f32: 16 lanes, lane l summing k = l, l+16, ... in ascending order, then lane l + lane
// l+8, l + l+4, l + l+2, 0 + 1. n is a multiple of 16. Terms are rounded before they are added.
inline float dot_16_lanes(const float* a, const float* b, std::int64_t n) {
  float lanes[kDotLanes] = {};
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    for (std::int64_t l = 0; l < kDotLanes; ++l) lanes[l] += a[k + l] * b[k + l];
  }
  for (std::int64_t half = kDotLanes / 2; half > 0; half /= 2) {
    for (std::int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_ATTENTION_ORDER_H_
