#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

KvCache::KvCache(const ModelConfig& config, const Arithmetic& arithmetic)
    : window_(config.window),
      head_dim_(config.head_dim),
      window_row_bytes_(kernels::row_bytes(arithmetic.window_format, config.head_dim)),
      main_row_bytes_(kernels::row_bytes(arithmetic.main_format, config.head_dim)),
      index_row_bytes_(kernels::row_bytes(arithmetic.index_format, config.index_head_dim)),
      windows_(usize(config.n_layers)) {
  for (WindowRing& ring : windows_) ring.rows.resize(usize(window_ * window_row_bytes_));
  for (const int layer : config.kv_source_layers) {
    GlobalKv source;
    source.layer = layer;
    source.ratio = config.plan[usize(layer)].ratio;
    if (source.ratio > 1) {
      source.carry_values.resize(usize(std::int64_t{source.ratio} * head_dim_));
      source.carry_gates.resize(source.carry_values.size());
    }
    block_bytes_ += kBlockTokens / source.ratio * (main_row_bytes_ + index_row_bytes_);
    sources_.push_back(std::move(source));
  }
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

void KvCache::export_block(std::int64_t block, std::span<std::byte> out) const {
  std::byte* at = out.data();
  const auto copy = [&](const std::vector<std::byte>& rows, std::int64_t first, std::int64_t n,
                        std::int64_t bytes) {
    std::memcpy(at, rows.data() + first * bytes, usize(n * bytes));
    at += n * bytes;
  };
  for (const GlobalKv& source : sources_) {
    const std::int64_t n = kBlockTokens / source.ratio;
    copy(source.main, block * n, n, main_row_bytes_);
    copy(source.index, block * n, n, index_row_bytes_);
  }
}

void KvCache::import_block(std::span<const std::byte> block) {
  const std::byte* at = block.data();
  const auto append = [&](std::vector<std::byte>& rows, std::int64_t bytes) {
    rows.insert(rows.end(), at, at + bytes);
    at += bytes;
  };
  for (GlobalKv& source : sources_) {
    const std::int64_t n = kBlockTokens / source.ratio;
    append(source.main, n * main_row_bytes_);
    append(source.index, n * index_row_bytes_);
    source.n_entries += n;
    source.carry_count = 0;
  }
}

std::vector<std::byte> KvCache::export_tail(std::int64_t position) const {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  const std::int64_t block_start = position / kBlockTokens * kBlockTokens;
  for (const GlobalKv& source : sources_) {
    const std::int64_t first = block_start / source.ratio, n = source.n_entries - first;
    writer.put(source.main.data() + first * main_row_bytes_, usize(n * main_row_bytes_));
    writer.put(source.index.data() + first * index_row_bytes_, usize(n * index_row_bytes_));
    const std::size_t carry = usize(source.carry_count * head_dim_) * sizeof(float);
    writer.put(source.carry_values.data(), carry);
    writer.put(source.carry_gates.data(), carry);
  }
  for (const WindowRing& ring : windows_) {
    writer.put(&ring.begin, sizeof ring.begin);
    for (std::int64_t p = ring.begin; p < ring.end; ++p) {
      writer.put(ring.rows.data() + p % window_ * window_row_bytes_, usize(window_row_bytes_));
    }
  }
  return out;
}

bool KvCache::import_tail(std::int64_t position, std::span<const std::byte> tail) {
  ByteReader reader(tail);
  for (GlobalKv& source : sources_) {
    const std::int64_t n_entries = position / source.ratio;
    if (source.n_entries > n_entries) return false;
    source.main.resize(usize(n_entries * main_row_bytes_));
    source.index.resize(usize(n_entries * index_row_bytes_));
    const std::int64_t first = source.n_entries;
    source.n_entries = n_entries;
    source.carry_count = position % source.ratio;
    const std::size_t carry = usize(source.carry_count * head_dim_) * sizeof(float);
    if (!reader.take(source.main.data() + first * main_row_bytes_,
                     usize((n_entries - first) * main_row_bytes_)) ||
        !reader.take(source.index.data() + first * index_row_bytes_,
                     usize((n_entries - first) * index_row_bytes_)) ||
        !reader.take(source.carry_values.data(), carry) ||
        !reader.take(source.carry_gates.data(), carry)) {
      return false;
    }
  }
  for (WindowRing& ring : windows_) {
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

std::int64_t KvCache::bytes() const {
  std::size_t total = 0;
  for (const WindowRing& ring : windows_) total += ring.rows.capacity();
  for (const GlobalKv& source : sources_) {
    total += source.main.capacity() + source.index.capacity();
  }
  return static_cast<std::int64_t>(total);
}

}  // namespace cairn::engine
