// Pooling of `ratio` tokens into one latent (spec/architecture.md section 7.3): per channel a
// softmax over the group's gates weighs the group's values.
#ifndef CAIRN_KERNELS_COMPRESSOR_POOL_H_
#define CAIRN_KERNELS_COMPRESSOR_POOL_H_

#include <cstdint>

#include "kernels/context.h"

namespace cairn::kernels {

struct CompressorPoolArgs {
  const float* values = nullptr;  // [groups, ratio, dim]
  const float* gates = nullptr;   // [groups, ratio, dim]
  std::int64_t groups = 0, ratio = 0, dim = 0;
  float* out = nullptr;  // [groups, dim]
  bool round_bf16 = false;
};
using CompressorPoolFn = void(Context&, const CompressorPoolArgs&);
CompressorPoolFn compressor_pool_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_COMPRESSOR_POOL_H_
