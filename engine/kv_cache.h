// All state that attention needs of one sequence, in the packed formats: a ring of the newest
// `window` rows for every layer, and the growing global rows (main KV, index keys) and the
// unfinished group of every KV source layer (spec/architecture.md sections 7.2, 7.3, 10). Confined
// to the engine's strand.
#ifndef CAIRN_ENGINE_KV_CACHE_H_
#define CAIRN_ENGINE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/arithmetic.h"
#include "engine/model_config.h"

namespace cairn::engine {

// Row of position p lies at slot p mod window. Rows of [begin, end) are valid.
struct WindowRing {
  std::vector<std::byte> rows;  // [window, row_bytes]
  std::int64_t begin = 0, end = 0;
};

struct GlobalKv {
  int layer = 0, ratio = 1;
  std::int64_t n_entries = 0;
  std::vector<std::byte> main;   // [n_entries, main row bytes]
  std::vector<std::byte> index;  // [n_entries, index row bytes]
  // The group that is not complete: projections of its first carry_count tokens.
  std::int64_t carry_count = 0;
  std::vector<float> carry_values, carry_gates;  // [ratio, head_dim]
};

class KvCache {
 public:
  KvCache(const ModelConfig& config, const Arithmetic& arithmetic);

  std::int64_t window_row_bytes() const { return window_row_bytes_; }
  std::int64_t main_row_bytes() const { return main_row_bytes_; }
  std::int64_t index_row_bytes() const { return index_row_bytes_; }

  WindowRing& window(int layer) { return windows_[static_cast<std::size_t>(layer)]; }
  const WindowRing& window(int layer) const { return windows_[static_cast<std::size_t>(layer)]; }
  std::vector<GlobalKv>& sources() { return sources_; }
  const std::vector<GlobalKv>& sources() const { return sources_; }
  // The cache of KV source layer `layer`.
  GlobalKv& source(int layer);

  // Writes the rows of positions first .. first+n-1 into the ring of `layer`. Rows that do not
  // follow the ring's end replace its content.
  void write_window(int layer, std::int64_t first, std::int64_t n, const std::byte* rows);

  // --- Blocks: the global rows of kBlockTokens tokens, every source layer ascending, main rows
  // then index rows (session/FORMAT.md "KV payload").
  std::int64_t block_bytes() const { return block_bytes_; }
  void export_block(std::int64_t block, std::span<std::byte> out) const;
  // Appends; the cache must end at this block's start with no unfinished group.
  void import_block(std::span<const std::byte> block);

  // --- Tail: everything else at `position`: global rows past the last whole block, carries, rings
  // (session/FORMAT.md "Tail payload").
  std::vector<std::byte> export_tail(std::int64_t position) const;
  // On top of imported blocks up to position/kBlockTokens. False: the bytes do not fit this model.
  bool import_tail(std::int64_t position, std::span<const std::byte> tail);

  std::int64_t bytes() const;  // allocated for rows

 private:
  int window_ = 0, head_dim_ = 0;
  std::int64_t window_row_bytes_ = 0, main_row_bytes_ = 0, index_row_bytes_ = 0, block_bytes_ = 0;
  std::vector<WindowRing> windows_;
  std::vector<GlobalKv> sources_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_KV_CACHE_H_
