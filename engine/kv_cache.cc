#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "engine/sizes.h"

namespace cairn::engine {
namespace {

// Sequential writer and reader over a byte buffer; the reader refuses to run past the end.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}
  void put(const void* bytes, std::size_t n) {
    const auto* first = static_cast<const std::byte*>(bytes);
    out_.insert(out_.end(), first, first + n);
  }

 private:
  std::vector<std::byte>& out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}
  bool take(void* bytes, std::size_t n) {
    if (in_.size() < n) return false;
    if (n > 0) std::memcpy(bytes, in_.data(), n);
    in_ = in_.subspan(n);
    return true;
  }
  bool at_end() const { return in_.empty(); }

 private:
  std::span<const std::byte> in_;
};

std::int64_t entries_per_page(const GlobalKv& source) { return kBlockTokens / source.ratio; }

}  // namespace

KvCache::KvCache(const ModelConfig& config, const Arithmetic& arithmetic)
    : window_(config.window),
      head_dim_(config.head_dim),
      main_format_(arithmetic.main_format),
      index_format_(arithmetic.index_format),
      window_row_bytes_(kernels::row_bytes(arithmetic.window_format, config.head_dim)),
      main_row_bytes_(kernels::row_bytes(arithmetic.main_format, config.head_dim)),
      index_row_bytes_(kernels::row_bytes(arithmetic.index_format, config.index_head_dim)),
      n_layers_(usize(config.n_layers)),
      windows_(usize(config.n_layers + config.n_draft_stages)) {
  for (WindowRing& ring : windows_) ring.rows.resize(usize(window_ * window_row_bytes_));
  for (const int layer : config.kv_source_layers) {
    GlobalKv source;
    source.layer = layer;
    source.ratio = config.plan[usize(layer)].ratio;
    if (source.ratio > 1) {
      source.carry_values.resize(usize(std::int64_t{source.ratio} * head_dim_));
      source.carry_gates.resize(source.carry_values.size());
    }
    source.main_offset = block_bytes_;
    source.index_offset = source.main_offset + entries_per_page(source) * main_row_bytes_;
    block_bytes_ = source.index_offset + entries_per_page(source) * index_row_bytes_;
    sources_.push_back(std::move(source));
  }
  group_rows_.resize(sources_.size());
}

GlobalKv& KvCache::source(int layer) {
  return *std::find_if(sources_.begin(), sources_.end(),
                       [&](const GlobalKv& source) { return source.layer == layer; });
}

void KvCache::write_window(int layer, std::int64_t first, std::int64_t n, const std::byte* rows) {
  WindowRing& ring = window(layer);
  if (first != ring.end) ring.begin = first;
  ring.end = first + n;
  ring.begin = std::max(ring.begin, ring.end - window_);
  for (std::int64_t p = std::max(first, ring.begin); p < ring.end; ++p) {
    std::memcpy(ring.rows.data() + p % window_ * window_row_bytes_,
                rows + (p - first) * window_row_bytes_, usize(window_row_bytes_));
  }
}

kernels::KvRows KvCache::rows(const GlobalKv& source, std::int64_t offset,
                              kernels::RowFormat format) const {
  return {page_bytes_.data(), format, entries_per_page(source), offset};
}

kernels::KvRows KvCache::main_rows(const GlobalKv& source) const {
  return rows(source, source.main_offset, main_format_);
}

kernels::KvRows KvCache::index_rows(const GlobalKv& source) const {
  return rows(source, source.index_offset, index_format_);
}

void KvCache::open_page() {
  open_pages_.push_back(std::make_unique<KvPage>());
  open_pages_.back()->bytes.resize(usize(block_bytes_));
  page_bytes_.push_back(open_pages_.back()->bytes.data());
}

KvCache::NewEntry KvCache::append_entry(GlobalKv& source) {
  const std::int64_t block = source.n_entries / entries_per_page(source);
  const std::int64_t row = source.n_entries % entries_per_page(source);
  if (block == n_pages() + static_cast<std::int64_t>(open_pages_.size())) open_page();
  std::byte* page = open_pages_[usize(block - n_pages())]->bytes.data();
  ++source.n_entries;
  return {page + source.main_offset + row * main_row_bytes_,
          page + source.index_offset + row * index_row_bytes_};
}

void KvCache::seal_pages(std::int64_t position) {
  while (n_pages() < position / kBlockTokens) {
    if (open_pages_.empty()) open_page();  // no source layer has opened it: there is none
    pages_.push_back(std::move(open_pages_.front()));
    open_pages_.erase(open_pages_.begin());
  }
}

template <class Body>
void KvCache::for_each_saved_row(const OpenState& state, const Body& body) const {
  const std::int64_t end = state.first + state.n;
  std::size_t index = 0;
  for (std::size_t layer = 0; layer < windows_.size(); ++layer) {
    for (std::int64_t p = end - std::min<std::int64_t>(state.n, window_); p < end; ++p) {
      body(layer, p, index++);
    }
  }
}

void KvCache::save_open_state(std::int64_t first, std::int64_t n, OpenState& state) const {
  state.first = first;
  state.n = n;
  state.window_bounds.clear();
  for (const WindowRing& ring : windows_) state.window_bounds.emplace_back(ring.begin, ring.end);
  const std::size_t bytes = usize(window_row_bytes_);
  state.window_rows.resize(windows_.size() * usize(std::min<std::int64_t>(n, window_)) * bytes);
  for_each_saved_row(state, [&](std::size_t layer, std::int64_t position, std::size_t index) {
    std::memcpy(state.window_rows.data() + index * bytes,
                windows_[layer].rows.data() + usize(position % window_) * bytes, bytes);
  });
  state.sources = sources_;
  state.n_open_pages = open_pages_.size();
}

// Rows that the step wrote behind the last entry stay and are overwritten by the next one.
void KvCache::go_back(const OpenState& state) {
  restore_windows(state, 0);
  for (std::size_t layer = 0; layer < windows_.size(); ++layer) {
    std::tie(windows_[layer].begin, windows_[layer].end) = state.window_bounds[layer];
  }
  sources_ = state.sources;
  keep_open_pages(state.n_open_pages);
}

void KvCache::cut_back(const OpenState& state, std::int64_t n_kept) {
  const std::int64_t end = state.first + n_kept;
  restore_windows(state, n_kept);
  for (std::size_t layer = 0; layer < windows_.size(); ++layer) {
    const auto [begin, window_end] = state.window_bounds[layer];
    windows_[layer].begin =
        std::max(window_end == state.first ? begin : state.first, end - window_);
    windows_[layer].end = end;
  }
  std::int64_t n_pages_used = 0;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    GlobalKv& source = sources_[i];
    source.n_entries = end / source.ratio;
    cut_group(state, i, end);
    n_pages_used = std::max(
        n_pages_used, (source.n_entries + entries_per_page(source) - 1) / entries_per_page(source));
  }
  keep_open_pages(
      std::max(state.n_open_pages, usize(std::max<std::int64_t>(0, n_pages_used - n_pages()))));
}

// Of the group that position `end` cuts, the first tokens were there before, or came in the step.
void KvCache::cut_group(const OpenState& state, std::size_t index, std::int64_t end) {
  GlobalKv& source = sources_[index];
  const GlobalKv& before = state.sources[index];
  source.carry_count = end % source.ratio;
  const auto put = [&](std::int64_t i, const std::vector<float>& values,
                       const std::vector<float>& gates, std::int64_t row) {
    std::copy_n(values.data() + row * head_dim_, head_dim_,
                source.carry_values.data() + i * head_dim_);
    std::copy_n(gates.data() + row * head_dim_, head_dim_,
                source.carry_gates.data() + i * head_dim_);
  };
  for (std::int64_t i = 0; i < source.carry_count; ++i) {
    const std::int64_t position = end - source.carry_count + i, row = position - state.first;
    if (row < 0) {
      put(i, before.carry_values, before.carry_gates, i);
    } else {
      put(i, group_rows_[index].values, group_rows_[index].gates, row);
    }
  }
}

void KvCache::keep_group_rows(const GlobalKv& source, std::int64_t n, const float* values,
                              const float* gates) {
  if (n == 1 || n > kMaxCutRows) return;
  GroupRows& kept = group_rows_[usize(&source - sources_.data())];
  kept.values.assign(values, values + n * head_dim_);
  kept.gates.assign(gates, gates + n * head_dim_);
}

// The rows that lay at the slots of the step's rows from `n_kept` on.
void KvCache::restore_windows(const OpenState& state, std::int64_t n_kept) {
  const std::size_t bytes = usize(window_row_bytes_);
  for_each_saved_row(state, [&](std::size_t layer, std::int64_t position, std::size_t index) {
    if (position < state.first + n_kept) return;
    std::memcpy(windows_[layer].rows.data() + usize(position % window_) * bytes,
                state.window_rows.data() + index * bytes, bytes);
  });
}

void KvCache::keep_open_pages(std::size_t n) {
  open_pages_.resize(n);
  page_bytes_.resize(pages_.size() + n);
}

void KvCache::replace_page(std::int64_t block, KvPagePtr page) {
  page_bytes_[usize(block)] = page->bytes.data();
  pages_[usize(block)] = std::move(page);
}

void KvCache::append_page(KvPagePtr page) {
  page_bytes_.push_back(page->bytes.data());
  pages_.push_back(std::move(page));
  for (GlobalKv& source : sources_) {
    source.n_entries += entries_per_page(source);
    source.carry_count = 0;
  }
}

std::vector<std::byte> KvCache::export_tail() const {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  for (const GlobalKv& source : sources_) {
    const std::int64_t n_open = source.n_entries - n_pages() * entries_per_page(source);
    if (n_open > 0) {
      const std::byte* page = open_pages_.front()->bytes.data();
      writer.put(page + source.main_offset, usize(n_open * main_row_bytes_));
      writer.put(page + source.index_offset, usize(n_open * index_row_bytes_));
    }
    const std::size_t carry = usize(source.carry_count * head_dim_) * sizeof(float);
    writer.put(source.carry_values.data(), carry);
    writer.put(source.carry_gates.data(), carry);
  }
  const std::int64_t position = windows_[0].end;
  for (const WindowRing& ring : windows_) {
    const std::int64_t begin = ring.end == position ? ring.begin : position;
    writer.put(&begin, sizeof begin);
    for (std::int64_t p = begin; p < position; ++p) {
      writer.put(ring.rows.data() + p % window_ * window_row_bytes_, usize(window_row_bytes_));
    }
  }
  return out;
}

bool KvCache::import_tail(std::int64_t position, std::span<const std::byte> tail) {
  if (n_pages() != position / kBlockTokens || !open_pages_.empty()) return false;
  open_page();
  std::byte* page = open_pages_.front()->bytes.data();
  ByteReader reader(tail);
  for (GlobalKv& source : sources_) {
    const std::int64_t n_open = position % kBlockTokens / source.ratio;
    source.n_entries += n_open;
    source.carry_count = position % source.ratio;
    const std::size_t carry = usize(source.carry_count * head_dim_) * sizeof(float);
    if (!reader.take(page + source.main_offset, usize(n_open * main_row_bytes_)) ||
        !reader.take(page + source.index_offset, usize(n_open * index_row_bytes_)) ||
        !reader.take(source.carry_values.data(), carry) ||
        !reader.take(source.carry_gates.data(), carry)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    WindowRing& ring = windows_[i];
    if (i >= n_layers_ && reader.at_end()) {
      ring.begin = ring.end = position;
      continue;
    }
    if (!reader.take(&ring.begin, sizeof ring.begin)) return false;
    if (ring.begin > position || ring.begin < std::max<std::int64_t>(0, position - window_)) {
      return false;
    }
    ring.end = position;
    for (std::int64_t p = ring.begin; p < ring.end; ++p) {
      if (!reader.take(ring.rows.data() + p % window_ * window_row_bytes_,
                       usize(window_row_bytes_))) {
        return false;
      }
    }
  }
  return reader.at_end();
}

std::int64_t KvCache::private_bytes() const {
  std::size_t total = open_pages_.size() * usize(block_bytes_);
  for (const WindowRing& ring : windows_) total += ring.rows.capacity();
  for (const GlobalKv& source : sources_) {
    total += (source.carry_values.capacity() + source.carry_gates.capacity()) * sizeof(float);
  }
  return static_cast<std::int64_t>(total);
}

}  // namespace cairn::engine
