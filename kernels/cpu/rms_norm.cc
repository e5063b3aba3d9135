#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cpu/lane_sum.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {

void rms_norm_scalar(Context& context, const RmsNormArgs& a) {
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = a.x + row * a.x_stride;
      float* out = a.out + row * a.out_stride;
      const float mean_square = dot_f32(x, x, a.dim) / static_cast<float>(a.dim);
      const float r = 1.0f / std::sqrt(mean_square + a.eps);
      for (std::int64_t i = 0; i < a.dim; ++i) {
        const float y = to_f32(a.weight[i]) * (x[i] * r);
        out[i] = a.round_bf16 ? round_to_bf16(y) : y;
      }
    }
  });
}

}  // namespace cairn::kernels
