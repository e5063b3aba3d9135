#include "kernels/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

float softplus(float z) { return z > 20.0f ? z : std::log1p(std::exp(z)); }

}  // namespace

void route_scalar(Context&, const RouteArgs& a) {
  std::vector<float> scores(static_cast<std::size_t>(a.n_experts)), biased(scores.size());
  std::vector<std::int32_t> order(scores.size());
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::size_t e = 0; e < scores.size(); ++e) {
      const float z = a.logits[row * a.n_experts + static_cast<std::int64_t>(e)] / a.temperature;
      scores[e] = std::sqrt(softplus(z));
      biased[e] = scores[e] + a.bias[e];
    }
    if (a.biased) std::copy(biased.begin(), biased.end(), a.biased + row * a.n_experts);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + a.n_active, order.end(),
                      [&](std::int32_t x, std::int32_t y) {
                        const float bx = biased[static_cast<std::size_t>(x)];
                        const float by = biased[static_cast<std::size_t>(y)];
                        return bx != by ? bx > by : x < y;
                      });
    float sum = 0;
    for (std::int64_t i = 0; i < a.n_active; ++i) {
      const std::int32_t id = order[static_cast<std::size_t>(i)];
      a.ids[row * a.n_active + i] = id;
      sum += scores[static_cast<std::size_t>(id)];
    }
    for (std::int64_t i = 0; i < a.n_active; ++i) {
      const float s = scores[static_cast<std::size_t>(a.ids[row * a.n_active + i])];
      a.weights[row * a.n_active + i] = (a.normalise ? s / (sum + 1e-20f) : s) * a.scale;
    }
  }
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
        const float activated = g / (1.0f + std::exp(-g)) * u * weight;
        a.out[i] = a.round_bf16 ? round_to_bf16(activated) : activated;
      }
    }
  });
}

}  // namespace cairn::kernels
