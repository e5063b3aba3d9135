#include "kernels/sparse_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_order.h"
#include "kernels/cpu/exponential.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

// The rows a query attends, decoded: values[i] belongs to list place i.
struct DecodedList {
  std::vector<float> values;  // [n_places, head_dim]; unset where !present
  std::vector<std::uint8_t> present;
};

void decode_places(const KvRows& table, const std::int32_t* list, std::int64_t n,
                   std::int64_t head_dim, std::int64_t first, DecodedList& decoded) {
  const std::int64_t bytes = row_bytes(table.format, head_dim);
  for (std::int64_t i = 0; i < n; ++i) {
    decoded.present[static_cast<std::size_t>(first + i)] = list[i] >= 0;
    if (list[i] < 0) continue;
    decode_row(table.format, table.row(list[i], bytes), head_dim,
               decoded.values.data() + (first + i) * head_dim);
  }
}

void attend(const SparseAttentionArgs& a, const DecodedList& list, const float* q, float sink,
            float* out) {
  const std::int64_t n_places = a.n_window + a.n_main;
  float running_max = kFirstMaximum, denominator = 0;
  std::fill(out, out + a.head_dim, 0.0f);
  for (std::int64_t begin = 0; begin < n_places; begin += kBlockPlaces) {
    const std::int64_t end = std::min(begin + kBlockPlaces, n_places);
    float logits[kBlockPlaces];
    float block_max = running_max;
    for (std::int64_t i = begin; i < end; ++i) {
      logits[i - begin] = -std::numeric_limits<float>::infinity();
      if (!list.present[static_cast<std::size_t>(i)]) continue;
      logits[i - begin] =
          dot_16_lanes(q, list.values.data() + i * a.head_dim, a.head_dim) * a.scale;
      block_max = std::max(block_max, logits[i - begin]);
    }
    const float shrink = exp_f32(running_max - block_max);
    running_max = block_max;
    denominator *= shrink;
    for (std::int64_t c = 0; c < a.head_dim; ++c) out[c] *= shrink;
    float block_sum = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      if (!list.present[static_cast<std::size_t>(i)]) continue;
      float p = exp_f32(logits[i - begin] - running_max);
      if (p < kSmallestWeight) p = 0;
      block_sum += p;
      const float weight = a.round_bf16 ? round_to_bf16(p) : p;
      const float* value = list.values.data() + i * a.head_dim;
      for (std::int64_t c = 0; c < a.head_dim; ++c) out[c] += weight * value[c];
    }
    denominator += block_sum;
  }
  denominator += exp_f32(sink - running_max);
  for (std::int64_t c = 0; c < a.head_dim; ++c) {
    const float o = out[c] / denominator;
    out[c] = a.round_bf16 ? round_to_bf16(o) : o;
  }
}

}  // namespace

void sparse_attention_scalar(Context& context, const SparseAttentionArgs& a) {
  const std::int64_t n_places = a.n_window + a.n_main;
  context.parallel_for(a.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    DecodedList list;
    list.values.resize(static_cast<std::size_t>(n_places * a.head_dim));
    list.present.resize(static_cast<std::size_t>(n_places));
    for (std::int64_t row = begin; row < end; ++row) {
      decode_places(a.window, a.window_slots + row * a.n_window, a.n_window, a.head_dim, 0, list);
      decode_places(a.main, a.main_rows + row * a.n_main, a.n_main, a.head_dim, a.n_window, list);
      for (std::int64_t head = 0; head < a.n_heads; ++head) {
        const std::int64_t at = (row * a.n_heads + head) * a.head_dim;
        attend(a, list, a.q + at, a.sink[head], a.out + at);
      }
    }
  });
}

}  // namespace cairn::kernels
