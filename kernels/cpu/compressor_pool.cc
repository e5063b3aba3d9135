#include "kernels/compressor_pool.h"

#include <algorithm>

#include "kernels/cpu/exponential.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {

void compressor_pool_scalar(Context&, const CompressorPoolArgs& a) {
  for (std::int64_t group = 0; group < a.groups; ++group) {
    const float* values = a.values + group * a.ratio * a.dim;
    const float* gates = a.gates + group * a.ratio * a.dim;
    for (std::int64_t c = 0; c < a.dim; ++c) {
      float largest = gates[c];
      for (std::int64_t r = 1; r < a.ratio; ++r) largest = std::max(largest, gates[r * a.dim + c]);
      float sum = 0;
      for (std::int64_t r = 0; r < a.ratio; ++r) sum += exp_f32(gates[r * a.dim + c] - largest);
      float pooled = 0;
      for (std::int64_t r = 0; r < a.ratio; ++r) {
        pooled += exp_f32(gates[r * a.dim + c] - largest) / sum * values[r * a.dim + c];
      }
      a.out[group * a.dim + c] = a.round_bf16 ? round_to_bf16(pooled) : pooled;
    }
  }
}

}  // namespace cairn::kernels
