// lane_sum.h in vectors: the same eight f64 lanes, the same bits. Included again for each
// instruction set.
#if defined(CAIRN_KERNELS_CPU_LANE_SUM_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef CAIRN_KERNELS_CPU_LANE_SUM_SIMD_H_
#define CAIRN_KERNELS_CPU_LANE_SUM_SIMD_H_
#else
#undef CAIRN_KERNELS_CPU_LANE_SUM_SIMD_H_
#endif

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight f64 lanes in as many vectors as it takes.
class LaneSum {
 public:
  HWY_INLINE LaneSum() {
    for (auto& v : lanes_) v = hn::Zero(kF64);
  }

  // lanes[l] += a[l] * b[l], of eight numbers each.
  HWY_INLINE void add(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      const auto wide_a = hn::PromoteTo(kF64, hn::LoadU(kF32, a + i * kPerVector));
      const auto wide_b = hn::PromoteTo(kF64, hn::LoadU(kF32, b + i * kPerVector));
      lanes_[i] = hn::MulAdd(wide_a, wide_b, lanes_[i]);
    }
  }

  // Of the first n < 8 lanes; reads n numbers.
  HWY_INLINE void add_tail(const float* a, const float* b, std::int64_t n) {
    if (n == 0) return;
    float padded_a[8] = {}, padded_b[8] = {};  // a lane is never -0: adding 0 changes none
    std::memcpy(padded_a, a, static_cast<std::size_t>(n) * sizeof(float));
    std::memcpy(padded_b, b, static_cast<std::size_t>(n) * sizeof(float));
    add(padded_a, padded_b);
  }

  HWY_INLINE float sum() const {
    HWY_ALIGN double l[8];
    for (std::size_t i = 0; i < kVectors; ++i) hn::Store(lanes_[i], kF64, l + i * kPerVector);
    return static_cast<float>(((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])));
  }

 private:
  static constexpr hn::CappedTag<double, 8> kF64{};
  static constexpr hn::Rebind<float, decltype(kF64)> kF32{};
  static constexpr std::size_t kPerVector = hn::MaxLanes(kF64), kVectors = 8 / kPerVector;
  hn::Vec<decltype(kF64)> lanes_[kVectors];
};

HWY_INLINE float dot_f32(const float* a, const float* b, std::int64_t n) {
  LaneSum lanes;
  std::int64_t k = 0;
  for (; k + 8 <= n; k += 8) lanes.add(a + k, b + k);
  lanes.add_tail(a + k, b + k, n - k);
  return lanes.sum();
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#endif  // toggle
