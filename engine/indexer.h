// Which compressed entries a query attends (spec/architecture.md section 8).
#ifndef CAIRN_ENGINE_INDEXER_H_
#define CAIRN_ENGINE_INDEXER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/layer_context.h"
#include "engine/linear.h"
#include "engine/weights.h"

namespace cairn::engine {

// Rotated index queries before quantisation: [rows, index_n_heads, index_head_dim].
StepVector<float> index_queries(const LayerContext& ctx, const IndexerWeights& w,
                                const LinearInput& qr, std::span<const std::int64_t> positions);
// Packs them as the cache packs keys: [rows, index_n_heads] packed rows.
StepVector<std::byte> pack_index_queries(const LayerContext& ctx, std::span<const float> q);
// Head weights before the factor: [rows, index_n_heads].
StepVector<float> index_head_weights(const LayerContext& ctx, const IndexerWeights& w,
                                     const float* x, std::int64_t rows);
// Multiplies them in place by the factor (index_head_dim * index_n_heads)^-1/2.
void scale_head_weights(const LayerContext& ctx, std::span<float> weights);

// Entries visible to the query at `position`.
inline std::int64_t visible_entries(std::int64_t position, int ratio) {
  return (position + 1) / ratio;
}

// Scores of the first n_visible entries for one query: q [heads] packed rows, w [heads]. Entries
// outside the pool (see candidate_pool) are not looked at, their scores are -infinity.
StepVector<float> index_scores(const LayerContext& ctx, const std::byte* q, const float* w,
                               const kernels::KvRows& keys, std::int64_t n_visible,
                               std::span<const std::uint8_t> pool = {});

// Blocks of the candidate pool from the scores of all visible entries, into `kept`; empty if it
// restricts nothing.
void candidate_pool(const LayerContext& ctx, std::span<const float> scores,
                    std::vector<std::uint8_t>& kept);
// The index_top_k best, ascending, -1 padded: out [index_top_k].
void select_entries(const LayerContext& ctx, std::span<const float> scores, std::int32_t* out);

// All of it for the queries of `rows` rows, each over its own keys: writes top_k [rows,
// index_top_k] and, at the candidate source, kept_blocks[i]; reads kept_blocks[i] where the layer
// searches the pool.
void run_indexer(const LayerContext& ctx, const IndexerWeights& w, const LinearInput& qr,
                 const float* x, std::span<const std::int64_t> positions,
                 std::span<const kernels::KvRows> keys, std::int32_t* top_k,
                 std::vector<std::uint8_t>* kept_blocks);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_INDEXER_H_
