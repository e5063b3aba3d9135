// Global KV of a source layer: latents, and the main KV rows and index keys derived from them
// (spec/architecture.md sections 7.3 and 8.1).
#ifndef CAIRN_ENGINE_COMPRESSOR_H_
#define CAIRN_ENGINE_COMPRESSOR_H_

#include <cstdint>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/layer_context.h"
#include "engine/weights.h"

namespace cairn::engine {

// Latents of ratio-1 rows: x [rows, dim] -> [rows, head_dim].
std::vector<float> latents_of_rows(const LayerContext& ctx, const CompressorWeights& w,
                                   const float* x, std::int64_t rows);
// Projections of grouped rows, f32: values and gates [rows, head_dim] each.
void project_group_rows(const LayerContext& ctx, const CompressorWeights& w, const float* x,
                        std::int64_t rows, float* values, float* gates);
// Latents of complete groups: values, gates [groups, ratio, head_dim] -> [groups, head_dim].
std::vector<float> latents_of_groups(const LayerContext& ctx, const CompressorWeights& w,
                                     const float* values, const float* gates, std::int64_t groups);

// Rotated main KV before quantisation, of entries first, first+1, ...: [n, head_dim].
std::vector<float> main_kv(const LayerContext& ctx, const std::vector<float>& latents,
                           std::int64_t first);
// Rotated index keys before quantisation: [n, index_head_dim].
std::vector<float> index_keys(const LayerContext& ctx, const IndexerWeights& w,
                              const std::vector<float>& latents, std::int64_t first);

// Appends the entries of the groups that the next rows complete to `kv`, a source layer of `cache`,
// and keeps the unfinished group. x: [rows, dim], the rows after those `kv` has seen.
void append_global(const LayerContext& ctx, const AttentionWeights& w, const float* x,
                   std::int64_t rows, GlobalKv& kv, KvCache& cache);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_COMPRESSOR_H_
