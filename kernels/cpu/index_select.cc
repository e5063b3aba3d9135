#include "kernels/index_select.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/index_dot.h"
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

// A query or a key, ready for dot products.
class Operand {
 public:
  Operand(RowFormat format, const std::byte* row, std::int64_t dim) {
    if (format != RowFormat::kQm4) {
      values_.resize(static_cast<std::size_t>(dim));
      decode_row(format, row, dim, values_.data());
      return;
    }
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
    twice_.resize(static_cast<std::size_t>(dim));
    for (std::int64_t k = 0; k < dim; k += 32) {
      twice_of_block(bytes + k / 2, twice_.data() + k);
      scales_.push_back(e8m0_to_f32(bytes[dim / 2 + k / 32]));
    }
  }

  float dot(const Operand& key) const {
    if (!values_.empty()) {
      return dot_f32(values_.data(), key.values_.data(), static_cast<std::int64_t>(values_.size()));
    }
    float sum = 0;
    for (std::size_t block = 0; block < scales_.size(); ++block) {
      std::int32_t integer = 0;
      for (std::size_t i = 32 * block; i < 32 * block + 32; ++i) {
        integer += std::int32_t{twice_[i]} * std::int32_t{key.twice_[i]};
      }
      sum += static_cast<float>(integer) * (0.25f * scales_[block]) * key.scales_[block];
    }
    return sum;
  }

 private:
  std::vector<float> values_;       // unless kQm4
  std::vector<std::int8_t> twice_;  // kQm4: twice the E2M1 values
  std::vector<float> scales_;       // of blocks of 32
};

std::vector<Operand> operands(RowFormat format, const std::byte* rows, std::int64_t n,
                              std::int64_t dim) {
  std::vector<Operand> all;
  for (std::int64_t i = 0; i < n; ++i) {
    all.emplace_back(format, rows + i * row_bytes(format, dim), dim);
  }
  return all;
}

}  // namespace

void index_scores_scalar(Context& context, const IndexScoresArgs& a) {
  const auto rounded = [&](float x) { return a.round_bf16 ? round_to_bf16(x) : x; };
  const std::int64_t bytes = row_bytes(a.keys.format, a.dim);
  context.parallel_for(a.n_visible, 256, [&](std::int64_t begin, std::int64_t end) {
    const std::vector<Operand> queries = operands(a.keys.format, a.q, a.n_heads, a.dim);
    for (std::int64_t j = begin; j < end; ++j) {
      a.scores[j] = kMinusInfinity;
      if (a.kept && !a.kept[j / a.block_size]) continue;
      const Operand key(a.keys.format, a.keys.row(j, bytes), a.dim);
      float sum = 0;
      for (std::int64_t head = 0; head < a.n_heads; ++head) {
        const float dot = rounded(queries[static_cast<std::size_t>(head)].dot(key));
        sum += rounded((dot > 0.0f ? dot : 0.0f) * a.w[head]);
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
