// All state that attention needs of one sequence, in the packed formats: a ring of the newest
// `window` rows for every layer and, behind those, every draft stage; the global rows (main KV,
// index keys) of the KV source layers, in pages of one block of tokens; and the unfinished group of
// every source layer (spec/architecture.md sections 7.2, 7.3, 10). Pages of whole blocks are
// immutable and may be shared with other sequences; all else is this sequence's own. Confined to
// the engine's strand.
#ifndef CAIRN_ENGINE_KV_CACHE_H_
#define CAIRN_ENGINE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cairn/engine.h"
#include "engine/arithmetic.h"
#include "engine/kv_page.h"
#include "engine/model_config.h"
#include "kernels/sparse_attention.h"

namespace cairn::engine {

// Row of position p lies at slot p mod window. Rows of [begin, end) are valid.
struct WindowRing {
  std::vector<std::byte> rows;  // [window, row_bytes]
  std::int64_t begin = 0, end = 0;
};

// A KV source layer: how many entries it has, where they lie in every page, and what has not become
// an entry yet.
struct GlobalKv {
  int layer = 0, ratio = 1;
  std::int64_t n_entries = 0;
  std::int64_t main_offset = 0;   // of the block's main rows [128 / ratio] in a page, bytes
  std::int64_t index_offset = 0;  // and of its index rows
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

  // --- Global rows. Entries 0 .. source.n_entries-1 of a source layer; valid until the next entry
  // or page is added or replaced.
  kernels::KvRows main_rows(const GlobalKv& source) const;
  kernels::KvRows index_rows(const GlobalKv& source) const;
  // Where the rows of the next entry of `source` are to be written, both before the next call.
  struct NewEntry {
    std::byte* main = nullptr;   // main_row_bytes()
    std::byte* index = nullptr;  // index_row_bytes()
  };
  NewEntry append_entry(GlobalKv& source);
  // Makes the pages of the whole blocks before `position` immutable. Every source layer has the
  // entries of the tokens before it.
  void seal_pages(std::int64_t position);

  // --- A step that stops in the middle: what a step of positions first .. first+n-1 overwrites, to
  // go back to as long as seal_pages() has not been called. Saving into a state that was used
  // before takes no memory.
  struct OpenState {
    std::int64_t first = 0, n = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> window_bounds;  // [layers]
    std::vector<std::byte> window_rows;  // [layers, the last n positions or window, row_bytes]
    std::vector<GlobalKv> sources;
    std::size_t n_open_pages = 0;
  };
  void save_open_state(std::int64_t first, std::int64_t n, OpenState& state) const;
  void go_back(const OpenState& state);
  // The same, but the first `n_kept` rows of the step stay, as if there had been no others. For
  // steps of at most kMaxCutRows rows and of the window.
  static constexpr std::int64_t kMaxCutRows = kMaxDrafts + 1;
  void cut_back(const OpenState& state, std::int64_t n_kept);
  // Told by the step for each source layer that groups tokens, so that it can be cut between a
  // group's tokens: projections [n, head_dim] of its rows.
  void keep_group_rows(const GlobalKv& source, std::int64_t n, const float* values,
                       const float* gates);

  // --- Pages of the blocks that are sealed.
  std::int64_t block_bytes() const { return block_bytes_; }
  std::int64_t n_pages() const { return static_cast<std::int64_t>(pages_.size()); }
  const KvPagePtr& page(std::int64_t block) const {
    return pages_[static_cast<std::size_t>(block)];
  }
  // Takes another page of block_bytes() and equal content instead.
  void replace_page(std::int64_t block, KvPagePtr page);
  // Adds the next page, of block_bytes(); the cache must end at this block's start with no
  // unfinished group.
  void append_page(KvPagePtr page);

  // --- Tail: everything else: global rows past the last whole block, carries, rings
  // (session/FORMAT.md "Tail payload"). After seal_pages().
  std::vector<std::byte> export_tail() const;
  // On top of the position/kBlockTokens pages before it. False: the bytes do not fit this model.
  // Rings of draft stages may be missing at the end, as in older tails; they are empty then.
  bool import_tail(std::int64_t position, std::span<const std::byte> tail);

  // Bytes beside the pages, which no other sequence can share: rings, unfinished groups, the open
  // block.
  std::int64_t private_bytes() const;

 private:
  kernels::KvRows rows(const GlobalKv& source, std::int64_t offset,
                       kernels::RowFormat format) const;
  void open_page();
  void keep_open_pages(std::size_t n);
  void restore_windows(const OpenState& state, std::int64_t n_kept);
  void cut_group(const OpenState& state, std::size_t index, std::int64_t end);
  // Calls body(layer, position, index among the saved rows) for each row that a state keeps: those
  // that lie at the slots of the step's positions.
  template <class Body>
  void for_each_saved_row(const OpenState& state, const Body& body) const;

  int window_ = 0, head_dim_ = 0;
  kernels::RowFormat main_format_, index_format_;
  std::int64_t window_row_bytes_ = 0, main_row_bytes_ = 0, index_row_bytes_ = 0, block_bytes_ = 0;
  std::size_t n_layers_ = 0;  // the rings of the draft stages follow theirs
  std::vector<WindowRing> windows_;
  std::vector<GlobalKv> sources_;
  struct GroupRows {
    std::vector<float> values, gates;  // [rows, head_dim]
  };
  std::vector<GroupRows> group_rows_;  // of each source, of the last step that can be cut
  std::vector<KvPagePtr> pages_;       // of whole blocks
  // Of the blocks after those, being written: the last one, and in a step those that it completes.
  std::vector<std::unique_ptr<KvPage>> open_pages_;
  std::vector<const std::byte*> page_bytes_;  // of pages_, then of open_pages_: what kernels read
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_KV_CACHE_H_
