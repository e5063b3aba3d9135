// Router scores and the experts' activation in vectors, by the functions of exponential_simd.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/expert_choice.h"
#include "kernels/cpu/exponential.h"
#include "kernels/expert_routing.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_routing_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/exponential_simd.h"
#include "kernels/cpu/number_formats_simd.h"
#include "kernels/cpu/simd.h"

#if CAIRN_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cairn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DF = hn::ScalableTag<float>;
constexpr std::int64_t kN = static_cast<std::int64_t>(hn::MaxLanes(DF()));

void score_row(const RouteArgs& a, const float* logits, float* scores, float* biased) {
  const DF d;
  std::int64_t e = 0;
  for (; e + kN <= a.n_experts; e += kN) {
    const auto z = hn::Div(hn::LoadU(d, logits + e), hn::Set(d, a.temperature));
    const auto score = hn::Sqrt(softplus_lanes(d, z));
    hn::StoreU(score, d, scores + e);
    hn::StoreU(hn::Add(score, hn::LoadU(d, a.bias + e)), d, biased + e);
  }
  for (; e < a.n_experts; ++e) {
    scores[e] = std::sqrt(softplus_f32(logits[e] / a.temperature));
    biased[e] = scores[e] + a.bias[e];
  }
}

void route(Context& context, const RouteArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores(static_cast<std::size_t>(a.n_experts)), biased(scores.size());
    for (std::int64_t row = begin; row < end; ++row) {
      score_row(a, a.logits + row * a.n_experts, scores.data(), biased.data());
      choose_experts(a, row, scores.data(), biased.data());
    }
  });
}

void activate_row(const SwigluArgs& a, const float* gate, const float* up, float weight,
                  float* out) {
  const DF d;
  std::int64_t i = 0;
  const auto store = [&](auto x, auto tag, float* to) HWY_ATTR {
    hn::StoreU(a.round_bf16 ? round_to_bf16(tag, x) : x, tag, to);
  };
  for (; i + kN <= a.dim; i += kN) {
    store(swiglu_lanes(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i), weight, a.limit), d,
          out + i);
  }
  if (i == a.dim) return;
  // The rest of a row, padded.
  HWY_ALIGN float g[kN] = {}, u[kN] = {}, rest[kN];
  std::copy(gate + i, gate + a.dim, g);
  std::copy(up + i, up + a.dim, u);
  store(swiglu_lanes(d, hn::Load(d, g), hn::Load(d, u), weight, a.limit), d, rest);
  std::copy(rest, rest + (a.dim - i), out + i);
}

void swiglu(Context& context, const SwigluArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      activate_row(a, a.gate + row * a.dim, a.up + row * a.dim, a.weights ? a.weights[row] : 1.0f,
                   a.out + row * a.dim);
    }
  });
}

}  // namespace

void use_expert_routing(KernelTable& table) {
  table.route = route;
  table.swiglu = swiglu;
}

}  // namespace cairn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CAIRN_SIMD_TARGET

#if HWY_ONCE
namespace cairn::kernels {

void use_expert_routing(InstructionSet set, KernelTable& table) {
  CAIRN_USE(use_expert_routing, set, table);
}

}  // namespace cairn::kernels
#endif  // HWY_ONCE
