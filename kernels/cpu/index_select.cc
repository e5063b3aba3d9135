#include "kernels/index_select.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/lane_sum.h"
#include "kernels/number_formats.h"

namespace cairn::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The first min(k, n) positions in the order "higher score, then lower position", unsorted.
std::vector<std::int32_t> best_positions(const float* scores, std::int64_t n, std::int64_t k) {
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < n; ++i) {
    if (scores[i] > kMinusInfinity) positions.push_back(static_cast<std::int32_t>(i));
  }
  if (static_cast<std::int64_t>(positions.size()) > k) {
    std::nth_element(positions.begin(), positions.begin() + k, positions.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
                     });
    positions.resize(static_cast<std::size_t>(k));
  }
  return positions;
}

}  // namespace

void index_scores_scalar(Context& context, const IndexScoresArgs& a) {
  const auto rounded = [&](float x) { return a.round_bf16 ? round_to_bf16(x) : x; };
  const std::int64_t bytes = row_bytes(a.keys.format, a.dim);
  context.parallel_for(a.n_visible, 256, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> key(static_cast<std::size_t>(a.dim));
    for (std::int64_t j = begin; j < end; ++j) {
      decode_row(a.keys.format, a.keys.row(j, bytes), a.dim, key.data());
      float sum = 0;
      for (std::int64_t head = 0; head < a.n_heads; ++head) {
        const float dot = rounded(dot_f32(a.q + head * a.dim, key.data(), a.dim));
        sum += rounded(std::max(dot, 0.0f) * a.w[head]);
      }
      a.scores[j] = rounded(sum);
    }
  });
}

void top_k_scalar(Context&, const TopKArgs& a) {
  std::vector<std::int32_t> positions = best_positions(a.scores, a.n, a.k);
  std::sort(positions.begin(), positions.end());
  std::fill(std::copy(positions.begin(), positions.end(), a.out), a.out + a.k, -1);
}

void candidate_blocks_scalar(Context&, const CandidateBlocksArgs& a) {
  const std::int64_t n_blocks = (a.n + a.block_size - 1) / a.block_size;
  std::vector<float> best(static_cast<std::size_t>(n_blocks), kMinusInfinity);
  for (std::int64_t i = 0; i < a.n; ++i) {
    float& block = best[static_cast<std::size_t>(i / a.block_size)];
    block = std::max(block, a.scores[i]);
  }
  if (n_blocks > 0) best.back() = std::numeric_limits<float>::infinity();  // newest entry's block
  std::fill(a.kept, a.kept + n_blocks, std::uint8_t{0});
  for (const std::int32_t block : best_positions(best.data(), n_blocks, a.top_blocks)) {
    a.kept[block] = 1;
  }
}

}  // namespace cairn::kernels
