// The rows of one step: consecutive positions of one sequence, or of several sequences in turn.
#ifndef CAIRN_ENGINE_CHUNK_H_
#define CAIRN_ENGINE_CHUNK_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engram_tables.h"
#include "engine/kv_cache.h"
#include "engine/layer_context.h"
#include "engine/pass_plan.h"

namespace cairn::engine {

// A sequence's part: `n` rows from row `row` on, which are its positions first, first+1, ...
struct ChunkPart {
  std::int64_t row = 0, first = 0, n = 0;
  KvCache* cache = nullptr;
  const std::vector<std::int32_t>* classes = nullptr;  // token classes from position 0
};

// Row t of every activation is row t of the chunk.
struct Chunk {
  std::int64_t n = 0;
  std::span<const ChunkPart> parts;
  const EngramTables* engram = nullptr;  // null: the model has none
};

// The same as LayerRows, in rows of a chunk: each is the first of the rows up to the chunk's end,
// or that end.
struct ActiveRows {
  std::int64_t global_from = 0, window_from = 0, output_from = 0;
  bool reset_window = false;
};

inline ActiveRows active_rows(const LayerRows& rows, std::int64_t first, std::int64_t n) {
  const auto row_of = [&](std::int64_t position) {
    return std::clamp<std::int64_t>(position - first, 0, n);
  };
  return {row_of(rows.global_from), row_of(rows.window_from), row_of(rows.output_from),
          rows.reset_window && rows.window_from >= first};
}

// Of rows `from` and up.
inline StepVector<std::int64_t> positions_of(const LayerContext& ctx, const Chunk& chunk,
                                             std::int64_t from) {
  StepVector<std::int64_t> positions(&ctx.memory);
  positions.reserve(static_cast<std::size_t>(std::max<std::int64_t>(0, chunk.n - from)));
  for (const ChunkPart& part : chunk.parts) {
    for (std::int64_t i = std::max<std::int64_t>(0, from - part.row); i < part.n; ++i) {
      positions.push_back(part.first + i);
    }
  }
  return positions;
}

// Calls body(part, first row, number of rows) for the parts with rows from `from` on.
template <class Body>
void for_each_part(const Chunk& chunk, std::int64_t from, const Body& body) {
  for (const ChunkPart& part : chunk.parts) {
    const std::int64_t row = std::max(from, part.row), n = part.row + part.n - row;
    if (n > 0) body(part, row, n);
  }
}

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_CHUNK_H_
