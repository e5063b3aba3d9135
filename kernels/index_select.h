// Scores of compressed entries, the choice of the best, and the block pool of the decoder half
// (spec/architecture.md sections 8.3 to 8.5). Ties go to the higher score first, then the lower
// position.
#ifndef CAIRN_KERNELS_INDEX_SELECT_H_
#define CAIRN_KERNELS_INDEX_SELECT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/sparse_attention.h"

namespace cairn::kernels {

// score[j] = sum_h relu(q_h . k_j) * w_h for j < n_visible; with round_bf16 the dot product, the
// weighted term and the sum are each rounded to bf16 as in the reference. relu of NaN is 0.
//
// Queries are rows of the keys' format. Of packed rows (kQm4) the dot products are exact integers
// in blocks of 32 channels (of doubled values); each is multiplied with a quarter of the query's
// scale and then with the key's, and added in f32 in ascending order of blocks. Other rows are
// summed as lane_sum.h says. Heads add in f32 in ascending order.
struct IndexScoresArgs {
  const std::byte* q = nullptr;  // [n_heads] rows of keys.format, one query
  const float* w = nullptr;      // [n_heads]
  std::int64_t n_heads = 0, dim = 0;
  KvRows keys;  // n_visible rows
  std::int64_t n_visible = 0;
  // Which blocks of `block_size` entries are wanted, [ceil(n_visible/block_size)]; the others'
  // scores are -infinity, and their keys are not read. Null: all.
  const std::uint8_t* kept = nullptr;
  std::int64_t block_size = 0;
  float* scores = nullptr;  // [n_visible]
  bool round_bf16 = false;
};
using IndexScoresFn = void(Context&, const IndexScoresArgs&);

// The k best of scores[0..n), ascending by position, padded with -1. Entries of -infinity are never
// chosen.
struct TopKArgs {
  const float* scores = nullptr;
  std::int64_t n = 0, k = 0;
  std::int32_t* out = nullptr;  // [k]
};
using TopKFn = void(Context&, const TopKArgs&);

// Which blocks of `block_size` consecutive entries stay in the pool: the `top_blocks` with the
// highest best score, the block of the newest entry always among them. kept: [ceil(n/block_size)].
struct CandidateBlocksArgs {
  const float* scores = nullptr;  // [n], all visible
  std::int64_t n = 0, block_size = 0, top_blocks = 0;
  std::uint8_t* kept = nullptr;
};
using CandidateBlocksFn = void(Context&, const CandidateBlocksArgs&);

IndexScoresFn index_scores_scalar;
TopKFn top_k_scalar;
CandidateBlocksFn candidate_blocks_scalar;

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_INDEX_SELECT_H_
