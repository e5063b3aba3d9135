#include "kernels/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/expert_choice.h"
#include "kernels/cpu/exponential.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {
void route_scalar(Context& context, const RouteArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores(static_cast<std::size_t>(a.n_experts)), biased(scores.size());
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::size_t e = 0; e < scores.size(); ++e) {
        const float z = a.logits[row * a.n_experts + static_cast<std::int64_t>(e)] / a.temperature;
        scores[e] = std::sqrt(softplus_f32(z));
        biased[e] = scores[e] + a.bias[e];
      }
      choose_experts(a, row, scores.data(), biased.data());
    }
  });
}

void swiglu_scalar(Context& context, const SwigluArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float weight = a.weights ? a.weights[row] : 1.0f;
      for (std::int64_t i = row * a.dim; i < (row + 1) * a.dim; ++i) {
        float g = a.gate[i], u = a.up[i];
        if (a.limit > 0) {
          g = std::min(g, a.limit);
          u = std::clamp(u, -a.limit, a.limit);
        }
        const float activated = g / (1.0f + exp_f32(-g)) * u * weight;
        a.out[i] = a.round_bf16 ? round_to_bf16(activated) : activated;
      }
    }
  });
}

}  // namespace cairn::kernels
