#include "engine/moe.h"

#include <algorithm>
#include <span>

#include "engine/linear.h"
#include "engine/sizes.h"
#include "kernels/number_formats.h"

namespace cairn::engine {
namespace {

// out = w2 . swiglu(w1 . x, w3 . x), the router weight applied before the down projection.
template <class Weights>
StepVector<float> expert(const LayerContext& ctx, const Weights& w, const LinearInput& x,
                         const float* router_weights) {
  const std::int64_t rows = x.rows(), inner = w.w1.rows;
  StepVector<float> gate = ctx.scratch<float>(rows * inner), up = ctx.scratch<float>(rows * inner);
  StepVector<float> out = ctx.scratch<float>(rows * w.w2.rows);
  linear(ctx, x, w.w1, gate.data());
  linear(ctx, x, w.w3, up.data());
  ctx.k.swiglu(ctx.run, {.gate = gate.data(),
                         .up = up.data(),
                         .weights = router_weights,
                         .rows = rows,
                         .dim = inner,
                         .limit = ctx.config.swiglu_limit,
                         .out = gate.data(),
                         .round_bf16 = ctx.arithmetic.round_bf16});
  linear(ctx, LinearInput(ctx, gate.data(), rows, inner), w.w2, out.data());
  return out;
}

}  // namespace

Routing route(const LayerContext& ctx, const MoeWeights& w, const float* x, std::int64_t rows) {
  const ModelConfig& config = ctx.config;
  StepVector<float> logits = ctx.scratch<float>(rows * config.n_experts);
  linear(ctx, x, rows, w.gate, logits.data(), /*rounded=*/false);
  Routing routing{.ids = ctx.scratch<std::int32_t>(rows * config.n_active_experts),
                  .weights = ctx.scratch<float>(rows * config.n_active_experts),
                  .biased = ctx.scratch<float>(rows * config.n_experts)};
  ctx.k.route(ctx.run, {.logits = logits.data(),
                        .bias = w.bias.data,
                        .rows = rows,
                        .n_experts = config.n_experts,
                        .n_active = config.n_active_experts,
                        .temperature = config.gate_temperature,
                        .scale = config.route_scale,
                        .normalise = config.normalise_topk,
                        .ids = routing.ids.data(),
                        .weights = routing.weights.data(),
                        .biased = routing.biased.data()});
  return routing;
}

void moe(const LayerContext& ctx, const MoeWeights& w, const float* x, std::int64_t rows,
         float* y) {
  const ModelConfig& config = ctx.config;
  const Routing routing = route(ctx, w, x, rows);
  const LinearInput input(ctx, x, rows, config.dim);
  std::fill(y, y + rows * config.dim, 0.0f);
  const auto add = [&](std::span<const float> out, std::int64_t from, std::int64_t row) {
    for (std::int64_t c = 0; c < config.dim; ++c) {
      y[row * config.dim + c] += out[usize(from * config.dim + c)];
    }
  };
  // Ascending expert ids: that is the order of each row's sum.
  for (std::int32_t id = 0; id < config.n_experts; ++id) {
    const StepMemory::Scope scope(ctx.memory);
    StepVector<std::int64_t> members(&ctx.memory);
    StepVector<float> weights(&ctx.memory);
    members.reserve(usize(rows));
    weights.reserve(usize(rows));
    for (std::int64_t i = 0; i < rows * config.n_active_experts; ++i) {
      if (routing.ids[usize(i)] != id) continue;
      members.push_back(i / config.n_active_experts);
      weights.push_back(routing.weights[usize(i)]);
    }
    if (members.empty()) continue;
    const StepVector<float> out =
        expert(ctx, w.experts[usize(id)], LinearInput(ctx, input, members), weights.data());
    for (std::size_t i = 0; i < members.size(); ++i) {
      add(out, static_cast<std::int64_t>(i), members[i]);
    }
  }
  const StepVector<float> shared = expert(ctx, w.shared, input, nullptr);
  for (std::int64_t row = 0; row < rows; ++row) add(shared, row, row);
  if (!ctx.arithmetic.round_bf16) return;
  for (std::int64_t i = 0; i < rows * config.dim; ++i) y[i] = kernels::round_to_bf16(y[i]);
}

}  // namespace cairn::engine
