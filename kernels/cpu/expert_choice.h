// The choice of experts from scores, which all versions of `route` have in common.
#ifndef CAIRN_KERNELS_CPU_EXPERT_CHOICE_H_
#define CAIRN_KERNELS_CPU_EXPERT_CHOICE_H_

#include <algorithm>
#include <cstdint>

#include "kernels/expert_routing.h"

namespace cairn::kernels {

// Writes ids, weights and, where wanted, biased scores of one row. scores, biased: [n_experts]. NaN
// comes after everything else.
inline void choose_experts(const RouteArgs& a, std::int64_t row, const float* scores,
                           const float* biased) {
  std::int32_t* ids = a.ids + row * a.n_active;
  float* weights = a.weights + row * a.n_active;
  // Sorted insertion; most experts fail the first comparison.
  const auto before = [&](std::int32_t x, std::int32_t y) {
    if (biased[x] != biased[x] || biased[y] != biased[y]) return biased[x] == biased[x];
    return biased[x] > biased[y];
  };
  std::int64_t n = 0;
  for (std::int32_t e = 0; e < a.n_experts; ++e) {
    if (n == a.n_active && !before(e, ids[n - 1])) continue;
    std::int64_t at = n < a.n_active ? n++ : n - 1;
    for (; at > 0 && before(e, ids[at - 1]); --at) ids[at] = ids[at - 1];
    ids[at] = e;
  }
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += scores[ids[i]];
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = scores[ids[i]];
    weights[i] = (a.normalise ? s / (sum + 1e-20f) : s) * a.scale;
  }
  if (a.biased) std::copy(biased, biased + a.n_experts, a.biased + row * a.n_experts);
}

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_EXPERT_CHOICE_H_
