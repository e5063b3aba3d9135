// The feed-forward sublayer: router, routed experts, shared expert (spec/architecture.md section
// 9).
#ifndef CAIRN_ENGINE_MOE_H_
#define CAIRN_ENGINE_MOE_H_

#include <cstdint>

#include "engine/layer_context.h"
#include "engine/weights.h"

namespace cairn::engine {

struct Routing {
  StepVector<std::int32_t> ids;  // [rows, n_active], by descending biased score
  StepVector<float> weights;     // [rows, n_active]
  StepVector<float> biased;      // [rows, n_experts]
};

Routing route(const LayerContext& ctx, const MoeWeights& w, const float* x, std::int64_t rows);

// x: [rows, dim] -> y: [rows, dim].
void moe(const LayerContext& ctx, const MoeWeights& w, const float* x, std::int64_t rows, float* y);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_MOE_H_
