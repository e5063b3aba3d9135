// The Engram update of the streams before a layer (spec/architecture.md section 6).
#ifndef CAIRN_ENGINE_ENGRAM_H_
#define CAIRN_ENGINE_ENGRAM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/chunk.h"
#include "engine/engram_tables.h"
#include "engine/layer_context.h"
#include "engine/weights.h"

namespace cairn::engine {

// Row ids of positions first .. first+rows-1: [rows, columns]. `classes` covers positions from 0.
StepVector<std::int64_t> engram_row_ids(const LayerContext& ctx, const EngramTables& tables,
                                        const std::vector<std::int32_t>& classes,
                                        std::int64_t first, std::int64_t rows);
// The same of the chunk's rows from row `from` on.
StepVector<std::int64_t> engram_row_ids(const LayerContext& ctx, const Chunk& chunk,
                                        std::int64_t from);
// Asks the system for the rows of the chunk that this layer will read, where the table is larger
// than what stays in memory by itself: they come while the layers before it run.
void prefetch_engram_rows(const LayerContext& ctx, const EngramWeights& w, const Chunk& chunk);
// The rows, dequantised and concatenated: [rows, columns * engram_head_dim].
StepVector<float> engram_rows(const LayerContext& ctx, const EngramWeights& w,
                              std::span<const std::int64_t> ids);
// Keys and value: [rows, (hc+1) * dim].
StepVector<float> engram_kv(const LayerContext& ctx, const EngramWeights& w,
                            std::span<const float> rows_concatenated);
// h: [rows, hc, dim], updated in place. Returns the gates [rows, hc].
StepVector<float> engram_update(const LayerContext& ctx, const EngramWeights& w,
                                std::span<const float> kv, float* h);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ENGRAM_H_
