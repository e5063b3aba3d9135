// Names and shapes are those of the inventory that checkpoints are checked against, and binding is
// that of checkpoints: only the bytes are made up.
#include "engine/synthetic_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/sizes.h"
#include "engine/weights_loader.h"
#include "kernels/number_formats.h"

namespace cairn::engine {
namespace {

// What the bytes of a tensor have to look like.
enum Kind { kFp4, kFp8, kScale, kBf16Matrix, kBf16Vector, kF32Matrix, kF32Vector, kNumKinds };

// A shard's header may have any length: data begins anywhere, at a multiple of 8.
constexpr std::int64_t kFirstByte = 8;

bool is_vector(const ExpectedTensor& tensor) { return tensor.shape.size() < 2; }

Kind kind_of(const ExpectedTensor& tensor) {
  switch (tensor.dtype) {
    case DType::kI8:
      return kFp4;
    case DType::kF8E4M3:
      return kFp8;
    case DType::kF8E8M0:
      return kScale;
    case DType::kBf16:
      return is_vector(tensor) ? kBf16Vector : kBf16Matrix;
    default:
      return is_vector(tensor) ? kF32Vector : kF32Matrix;
  }
}

class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u | 1) {}
  std::uint64_t next() {  // xorshift64
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_;
};

// 64 bits of numbers of a kind. Products with normalised inputs come out near 1: a random FP4 or
// FP8 code has a root mean square of 3 to 5, a scale of 2^-8 or 2^-9 makes it 1 / sqrt(columns).
std::uint64_t random_word(Kind kind, std::uint64_t bits) {
  constexpr std::uint64_t kBytes = 0x0101010101010101u, kHalves = 0x0001000100010001u;
  switch (kind) {
    case kFp4:
      return bits;
    case kFp8: {  // exponents 2^-3 to 2^4: bits 6 and 5 differ
      const std::uint64_t top = bits & 0x40 * kBytes;
      return (bits & 0x9F * kBytes) | top | ((top >> 1) ^ 0x20 * kBytes);
    }
    case kScale:
      return 118 * kBytes + (bits & kBytes);
    case kBf16Matrix:
      return (bits & 0x807F * kHalves) | 0x3C80 * kHalves;  // 2^-6 to 2^-5
    case kBf16Vector:
      return (bits & 0x007F * kHalves) | 0x3F80 * kHalves;  // 1 to 2
    case kF32Matrix:
      return (bits & 0x807FFFFF807FFFFFu) | 0x3B8000003B800000u;  // 2^-8 to 2^-7
    default:
      return 0x3F0000003F000000u;  // 0.5
  }
}

// Memory of one kind, given out from its beginning and again.
class Pool {
 public:
  void fill(Kind kind, std::int64_t n_bytes, RandomBits& random) {
    memory_ = kernels::PageBuffer(usize(n_bytes + kFirstByte));
    n_bytes_ = n_bytes;
    next_ = 0;
    const std::span<std::byte> all = memory_.bytes();
    for (std::size_t at = 0; at < usize(n_bytes + kFirstByte); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random_word(kind, random.next());
      std::memcpy(all.data() + at, &word, sizeof word);
    }
  }
  const std::byte* take(std::int64_t n_bytes) {
    const std::int64_t n = (n_bytes + 7) / 8 * 8;
    if (next_ + n > n_bytes_) next_ = 0;
    const std::byte* taken = memory_.bytes().data() + kFirstByte + next_;
    next_ += n;
    return taken;
  }
  kernels::PageBuffer memory() && { return std::move(memory_); }

 private:
  kernels::PageBuffer memory_;
  std::int64_t n_bytes_ = 0, next_ = 0;
};

std::int64_t padded(std::int64_t n_bytes) { return (n_bytes + 7) / 8 * 8; }

struct Demand {
  std::int64_t all = 0, largest = 0;
};

// All but the vision tower.
bool is_bound(const ExpectedTensor& tensor) {
  return tensor.required_for_text || tensor.name.starts_with("mtp.");
}

bool is_engram_table(const ExpectedTensor& tensor) {
  return tensor.name.find(".engram.embed.") != std::string::npos;
}

using Sizes = std::array<std::int64_t, kNumKinds>;

// Everything its own place if it fits; else the kinds of which there is little get theirs, bf16
// matrices the largest of them (the head), and FP4, FP8 and scales share the rest as a pass reads
// them, beside the largest of each.
Result<Sizes> pool_sizes(const std::vector<ExpectedTensor>& tensors, std::int64_t max_bytes) {
  std::array<Demand, kNumKinds> demand;
  for (const ExpectedTensor& tensor : tensors) {
    if (is_engram_table(tensor)) continue;
    Demand& of_kind = demand[kind_of(tensor)];
    const std::int64_t n = padded(payload_bytes(tensor));
    of_kind.all += n;
    of_kind.largest = std::max(of_kind.largest, n);
  }
  Sizes sizes = {};
  std::int64_t total = 0;
  for (int kind = 0; kind < kNumKinds; ++kind)
    total += sizes[usize(kind)] = demand[usize(kind)].all;
  if (total <= max_bytes) return sizes;
  sizes[kBf16Matrix] = demand[kBf16Matrix].largest;
  std::int64_t rest = max_bytes;
  for (const Kind kind : {kBf16Matrix, kBf16Vector, kF32Matrix, kF32Vector}) rest -= sizes[kind];
  for (const Kind kind : {kFp4, kFp8, kScale}) rest -= demand[kind].largest;
  if (rest < 0) {
    return invalid_argument("synthetic weights of this shape do not fit " +
                            std::to_string(max_bytes) + " bytes");
  }
  constexpr std::array<std::pair<Kind, int>, 3> kShares = {{{kFp4, 34}, {kFp8, 26}, {kScale, 4}}};
  for (const auto& [kind, share] : kShares) {
    sizes[kind] = std::min(demand[kind].all, demand[kind].largest + rest / 64 * share / 8 * 8);
  }
  return sizes;
}

// Rows that a table of these columns can have here, as many for each column of the hash.
std::int64_t table_rows(const ModelConfig& config, std::int64_t wanted, const Sizes& sizes) {
  const std::int64_t most =
      std::min(sizes[kFp8] / config.engram_head_dim, sizes[kScale] / (config.engram_head_dim / 32));
  const std::int64_t columns = config.engram_columns();
  return std::max(columns, std::min(wanted, most) / columns * columns);
}

EngramTables make_tables(const ModelConfig& config, const std::vector<std::int64_t>& rows,
                         RandomBits& random) {
  EngramTables tables;
  for (int token = 0; token < config.vocab_size; ++token) {
    tables.classes.push_back(token);
  }
  tables.pad_class = tables.classes[usize(config.engram_pad_id)];
  for (const std::int64_t n_rows : rows) {
    EngramTables::Layer layer;
    const std::int64_t columns = config.engram_columns();
    for (int i = 0; i < config.engram_max_ngram; ++i) {
      layer.multipliers.push_back((random.next() >> 32) | 1);
    }
    for (std::int64_t column = 0; column < columns; ++column) {
      layer.primes.push_back(static_cast<std::uint64_t>(n_rows / columns));
      layer.offsets.push_back(static_cast<std::uint64_t>(n_rows / columns * column));
    }
    tables.layers.push_back(std::move(layer));
  }
  return tables;
}

}  // namespace

Result<SyntheticWeights> SyntheticWeights::create(const ModelConfig& config,
                                                  const SyntheticOptions& options) {
  ModelConfig shape = config;
  std::vector<ExpectedTensor> tensors = expected_tensors(shape);
  std::erase_if(tensors, [](const ExpectedTensor& tensor) { return !is_bound(tensor); });
  CAIRN_ASSIGN_OR_RETURN(const Sizes sizes, pool_sizes(tensors, options.max_bytes));
  for (std::int64_t& rows : shape.engram_rows) rows = table_rows(config, rows, sizes);
  tensors = expected_tensors(shape);

  SyntheticWeights made;
  RandomBits random(options.seed);
  std::array<Pool, kNumKinds> pools;
  try {
    for (int kind = 0; kind < kNumKinds; ++kind) {
      pools[usize(kind)].fill(static_cast<Kind>(kind), sizes[usize(kind)], random);
      made.allocated_bytes_ += sizes[usize(kind)];
    }
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory,
                  "no memory for " + std::to_string(options.max_bytes) + " bytes of weights");
  }
  made.expert_pool_bytes_ = sizes[kFp4];
  std::unordered_map<std::string, TensorEntry> entries;
  for (const ExpectedTensor& tensor : tensors) {
    if (!is_bound(tensor)) continue;
    const std::int64_t n = payload_bytes(tensor);
    entries[tensor.name] = {tensor.name, tensor.dtype, tensor.shape, pools[kind_of(tensor)].take(n),
                            n};
  }
  made.weights_ =
      bind_tensors(shape, /*with_drafts=*/shape.n_draft_stages > 0,
                   [&](const std::string& name) -> const TensorEntry& { return entries.at(name); });
  made.engram_tables_ = make_tables(config, shape.engram_rows, random);
  for (Pool& pool : pools) made.memory_.push_back(std::move(pool).memory());
  return made;
}

}  // namespace cairn::engine
