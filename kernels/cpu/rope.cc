#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

// The pair index at which a rotation of `beta` turns fits the original context.
double correction_index(double beta, int rope_dim, double theta, int original_positions) {
  return rope_dim * std::log(original_positions / (beta * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

}  // namespace

std::vector<float> rope_frequencies(int rope_dim, double theta, const YarnParams& yarn) {
  const int n = rope_dim / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    frequencies[static_cast<std::size_t>(i)] = 1.0f / std::pow(static_cast<float>(theta), exponent);
  }
  if (yarn.original_positions <= 0) return frequencies;
  const double low = std::max(
      std::floor(correction_index(yarn.beta_fast, rope_dim, theta, yarn.original_positions)), 0.0);
  double high = std::min(
      std::ceil(correction_index(yarn.beta_slow, rope_dim, theta, yarn.original_positions)),
      rope_dim - 1.0);
  if (high == low) high += 0.001;  // the reference's guard against a division by zero
  for (int i = 0; i < n; ++i) {
    float& f = frequencies[static_cast<std::size_t>(i)];
    const float ramp = std::clamp(static_cast<float>((i - low) / (high - low)), 0.0f, 1.0f);
    const float smooth = 1.0f - ramp;
    f = f / static_cast<float>(yarn.factor) * (1.0f - smooth) + f * smooth;
  }
  return frequencies;
}

void rope_angle(std::int64_t position, float frequency, float* cosine, float* sine) {
  const float angle = static_cast<float>(position) * frequency;  // the reference's f32 product
  *cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
  *sine = static_cast<float>(std::sin(static_cast<double>(angle)));
}

void rope_scalar(Context& context, const RopeArgs& a) {
  const auto rounded = [&](float x) { return a.round_bf16 ? round_to_bf16(x) : x; };
  context.parallel_for(a.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t i = 0; i < a.rope_dim / 2; ++i) {
        float c = 0, s = 0;
        rope_angle(a.positions[row], a.frequencies[i], &c, &s);
        if (a.inverse) s = -s;
        for (std::int64_t v = 0; v < a.n_vectors; ++v) {
          float* pair = a.x + (row * a.n_vectors + v) * a.dim + (a.dim - a.rope_dim) + 2 * i;
          const float x0 = pair[0], x1 = pair[1];
          pair[0] = rounded(x0 * c - x1 * s);
          pair[1] = rounded(x0 * s + x1 * c);
        }
      }
    }
  });
}

}  // namespace cairn::kernels
