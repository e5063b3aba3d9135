// Rotary position embedding on the last `rope_dim` channels, adjacent pairs, with YaRN frequencies
// and the inverse rotation (spec/architecture.md section 3.7).
#ifndef CAIRN_KERNELS_ROPE_H_
#define CAIRN_KERNELS_ROPE_H_

#include <cstdint>
#include <vector>

#include "kernels/context.h"

namespace cairn::kernels {

struct YarnParams {
  double factor = 1, beta_fast = 32, beta_slow = 1;
  int original_positions = 0;  // 0 = plain RoPE
};

// [rope_dim/2] f32 frequencies.
std::vector<float> rope_frequencies(int rope_dim, double theta, const YarnParams& yarn);

// cos and sin of the f32 product position * frequency, correctly rounded for practical purposes.
void rope_angle(std::int64_t position, float frequency, float* cosine, float* sine);

struct RopeArgs {
  float* x = nullptr;  // [rows, n_vectors, dim], rotated in place
  std::int64_t rows = 0, n_vectors = 1, dim = 0;
  std::int64_t rope_dim = 0;                // the last channels of each vector
  const float* frequencies = nullptr;       // [rope_dim/2]
  const std::int64_t* positions = nullptr;  // [rows]
  bool inverse = false;                     // rotate by the negative angle
  bool round_bf16 = false;                  // rotated channels are rounded to bf16
};
using RopeFn = void(Context&, const RopeArgs&);
RopeFn rope_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_ROPE_H_
