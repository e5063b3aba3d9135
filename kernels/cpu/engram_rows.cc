#include "kernels/engram_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {

float engram_gate(float s) {
  const float root = std::copysign(std::sqrt(std::max(std::fabs(s), 1e-6f)), s);
  return sigmoid_f32(root);
}

void engram_hash_scalar(Context&, const EngramHashArgs& a) {
  const std::int64_t n_columns = std::int64_t{a.max_ngram - 1} * a.n_heads;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t position = a.first + row;
    std::int64_t* ids = a.ids + row * n_columns;
    bool blocked = false;  // sticky: no look-back past the start or an image
    std::uint64_t hash = 0;
    for (int distance = 0; distance < a.max_ngram; ++distance) {
      const std::int64_t at = position - distance;
      blocked = blocked || at < 0 || a.classes[at] == kDeadClass;
      const std::int32_t token = blocked ? a.pad_class : a.classes[at];
      hash ^= static_cast<std::uint64_t>(token) * a.multipliers[distance];
      if (distance == 0) continue;
      for (int head = 0; head < a.n_heads; ++head) {
        const std::int64_t column = std::int64_t{distance - 1} * a.n_heads + head;
        ids[column] = static_cast<std::int64_t>(hash % a.primes[column] + a.offsets[column]);
      }
    }
  }
}

void engram_gather_scalar(Context&, const EngramGatherArgs& a) {
  const std::int64_t width = a.table.cols;
  for (std::int64_t i = 0; i < a.rows * a.n_columns; ++i) {
    const std::uint8_t* codes = a.table.codes + a.ids[i] * width;
    const std::uint8_t* scales = a.table.scales + a.ids[i] * (width / 32);
    for (std::int64_t c = 0; c < width; ++c) {
      const float value = e4m3_to_f32(codes[c]) * e8m0_to_f32(scales[c / 32]);
      a.out[i * width + c] = a.round_bf16 ? round_to_bf16(value) : value;
    }
  }
}

void engram_update_scalar(Context& context, const EngramUpdateArgs& a) {
  const auto dim = static_cast<float>(a.dim);
  const float scale = static_cast<float>(std::pow(static_cast<double>(a.dim), -0.5));
  context.parallel_for(a.rows, 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> weighted(static_cast<std::size_t>(a.dim));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* kv = a.kv + row * (a.n_streams + 1) * a.dim;
      const float* value = kv + a.n_streams * a.dim;
      for (std::int64_t s = 0; s < a.n_streams; ++s) {
        float* h = a.h + (row * a.n_streams + s) * a.dim;
        const float* key = kv + s * a.dim;
        for (std::int64_t c = 0; c < a.dim; ++c) {
          const std::int64_t w = s * a.dim + c;
          weighted[static_cast<std::size_t>(c)] =
              h[c] * (to_f32(a.q_weight[w]) * to_f32(a.k_weight[w]));
        }
        const float h_root = 1.0f / std::sqrt(dot_f32(h, h, a.dim) / dim + a.eps);
        const float key_root = 1.0f / std::sqrt(dot_f32(key, key, a.dim) / dim + a.eps);
        const float dot = dot_f32(weighted.data(), key, a.dim) * h_root * key_root * scale;
        const float gate = engram_gate(dot);
        a.gate[row * a.n_streams + s] = gate;
        for (std::int64_t c = 0; c < a.dim; ++c) {
          const float updated = h[c] + gate * value[c];
          h[c] = a.round_bf16 ? round_to_bf16(updated) : updated;
        }
      }
    }
  });
}

}  // namespace cairn::kernels
