// The Engram update of the streams before a layer (spec/architecture.md section 6).
#ifndef CAIRN_ENGINE_ENGRAM_H_
#define CAIRN_ENGINE_ENGRAM_H_

#include <cstdint>
#include <vector>

#include "engine/chunk.h"
#include "engine/engram_tables.h"
#include "engine/layer_context.h"
#include "engine/weights.h"

namespace cairn::engine {

// Row ids of positions first .. first+rows-1: [rows, columns]. `classes` covers positions from 0.
std::vector<std::int64_t> engram_row_ids(const LayerContext& ctx, const EngramTables& tables,
                                         const std::vector<std::int32_t>& classes,
                                         std::int64_t first, std::int64_t rows);
// The same of the chunk's rows from row `from` on.
std::vector<std::int64_t> engram_row_ids(const LayerContext& ctx, const Chunk& chunk,
                                         std::int64_t from);
// The rows, dequantised and concatenated: [rows, columns * engram_head_dim].
std::vector<float> engram_rows(const LayerContext& ctx, const EngramWeights& w,
                               const std::vector<std::int64_t>& ids);
// Keys and value: [rows, (hc+1) * dim].
std::vector<float> engram_kv(const LayerContext& ctx, const EngramWeights& w,
                             const std::vector<float>& rows_concatenated);
// h: [rows, hc, dim], updated in place. Returns the gates [rows, hc].
std::vector<float> engram_update(const LayerContext& ctx, const EngramWeights& w,
                                 const std::vector<float>& kv, float* h);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ENGRAM_H_
