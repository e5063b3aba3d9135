// The attention sublayer, one function per term of spec/architecture.md section 7.
#ifndef CAIRN_ENGINE_ATTENTION_H_
#define CAIRN_ENGINE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/activations.h"
#include "engine/chunk.h"
#include "engine/layer_context.h"
#include "engine/linear.h"
#include "engine/weights.h"

namespace cairn::engine {

// Section 7.1: normalised low-rank query [rows, q_rank] and rotated heads [rows, n_heads,
// head_dim].
StepVector<float> low_rank_queries(const LayerContext& ctx, const AttentionWeights& w,
                                   const LinearInput& x);
StepVector<float> head_queries(const LayerContext& ctx, const AttentionWeights& w,
                               const LinearInput& qr, std::span<const std::int64_t> positions);

// Section 7.2: rotated window KV before quantisation, [rows, head_dim].
StepVector<float> window_kv(const LayerContext& ctx, const AttentionWeights& w,
                            const LinearInput& x, std::span<const std::int64_t> positions);

// Section 7.5: queries [rows, n_heads, head_dim] over their lists of rows, -1 = an empty place ->
// out [rows, n_heads, head_dim]. window_slots: [rows, window], rows of `window`. main_rows:
// [rows, index_top_k], entries of `main`; not read in layers that have the window only.
void attend(const LayerContext& ctx, const AttentionWeights& w, const float* q, std::int64_t rows,
            const std::byte* window, const std::int32_t* window_slots, const kernels::KvRows& main,
            const std::int32_t* main_rows, float* out);

// Section 7.6: attention output [rows, n_heads, head_dim] (rotated back in place) -> y [rows, dim].
void attention_output(const LayerContext& ctx, const AttentionWeights& w, std::span<float> o,
                      std::span<const std::int64_t> positions, float* y);

// The whole sublayer for the chunk: reads a.normed, writes a.sublayer_out from rows.output_from on,
// a.top_k and a.kept_blocks where the layer indexes, and appends to the caches. What depends on the
// weights alone is done for all rows at once, what depends on a cache for each part.
void attention(const LayerContext& ctx, const AttentionWeights& w, int layer,
               const ActiveRows& rows, const Chunk& chunk, Activations& a);

// The inputs of a draft stage: `n` rows at positions first, first+1, ... that see the keys in
// `ring`, which end before `first`, and each other, whatever their order.
struct DraftBlock {
  std::int64_t first = 0, n = 0;
  const WindowRing& ring;
};
// The same sublayer in a draft stage (spec/dspark.md section 4), for rows 0 .. block.n-1. A ring
// that ends elsewhere counts as empty. ctx: LoadedModel::draft_context().
void draft_attention(const LayerContext& ctx, const AttentionWeights& w, const DraftBlock& block,
                     Activations& a);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ATTENTION_H_
