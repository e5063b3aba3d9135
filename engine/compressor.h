// Global KV of a source layer: latents, and the main KV rows and index keys derived from them
// (spec/architecture.md sections 7.3 and 8.1).
#ifndef CAIRN_ENGINE_COMPRESSOR_H_
#define CAIRN_ENGINE_COMPRESSOR_H_

#include <cstdint>
#include <span>

#include "engine/chunk.h"
#include "engine/layer_context.h"
#include "engine/weights.h"

namespace cairn::engine {

// Latents of ratio-1 rows: x [rows, dim] -> [rows, head_dim].
StepVector<float> latents_of_rows(const LayerContext& ctx, const CompressorWeights& w,
                                  const float* x, std::int64_t rows);
// Projections of grouped rows, f32: values and gates [rows, head_dim] each.
void project_group_rows(const LayerContext& ctx, const CompressorWeights& w, const float* x,
                        std::int64_t rows, float* values, float* gates);
// Latents of complete groups: values, gates [groups, ratio, head_dim] -> [groups, head_dim].
StepVector<float> latents_of_groups(const LayerContext& ctx, const CompressorWeights& w,
                                    const float* values, const float* gates, std::int64_t groups);

// Rotated main KV before quantisation, [n, head_dim]. positions: [n], of each entry's first token.
StepVector<float> main_kv(const LayerContext& ctx, std::span<const float> latents,
                          std::span<const std::int64_t> positions);
// Rotated index keys before quantisation: [n, index_head_dim].
StepVector<float> index_keys(const LayerContext& ctx, const IndexerWeights& w,
                             std::span<const float> latents,
                             std::span<const std::int64_t> positions);

// Appends the entries of the groups that the chunk's rows from row `from` on complete to the caches
// of its parts, at source layer `layer`, and keeps the unfinished groups. x: [chunk.n - from, dim].
// What depends on the weights alone is done for all parts at once.
void append_global(const LayerContext& ctx, const AttentionWeights& w, int layer, std::int64_t from,
                   const Chunk& chunk, const float* x);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_COMPRESSOR_H_
