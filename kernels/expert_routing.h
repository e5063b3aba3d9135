// Router and expert activation (spec/architecture.md section 9). The expert's matrix products are
// in matmul.h.
#ifndef CAIRN_KERNELS_EXPERT_ROUTING_H_
#define CAIRN_KERNELS_EXPERT_ROUTING_H_

#include <cstdint>

#include "kernels/context.h"

namespace cairn::kernels {

// Choice of experts from router logits: s = sqrt(softplus(z / temperature)), the n_active largest
// s + bias (ties to the lower id), weights s / (sum of chosen s + 1e-20) * scale.
struct RouteArgs {
  const float* logits = nullptr;  // [rows, n_experts]
  const float* bias = nullptr;    // [n_experts], selection only
  std::int64_t rows = 0, n_experts = 0, n_active = 0;
  float temperature = 1, scale = 1;
  bool normalise = true;        // divide by the sum of the chosen scores
  std::int32_t* ids = nullptr;  // [rows, n_active], by descending biased score
  float* weights = nullptr;     // [rows, n_active]
  float* biased = nullptr;      // [rows, n_experts]; may be null: the biased scores
};
using RouteFn = void(Context&, const RouteArgs&);

// a = weight * min(g, limit) * sigmoid(min(g, limit)) * clamp(u, -limit, limit); limit 0 = no
// clamp.
struct SwigluArgs {
  const float* gate = nullptr;     // [rows, dim]
  const float* up = nullptr;       // [rows, dim]
  const float* weights = nullptr;  // [rows]; null = 1 (the shared expert)
  std::int64_t rows = 0, dim = 0;
  float limit = 0;
  float* out = nullptr;  // [rows, dim]; may alias gate or up
  bool round_bf16 = false;
};
using SwigluFn = void(Context&, const SwigluArgs&);

RouteFn route_scalar;
SwigluFn swiglu_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_EXPERT_ROUTING_H_
