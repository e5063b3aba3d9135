// A block is two values: a small one in the index, under the key, which says where the block is and
// what it follows, and the large one, under (namespace, number). Walking chains and collecting
// garbage touch the first only. Keys are hashes: stored under them directly, every new block would
// fall between two old ones and be rewritten by each compaction.
#include "session/block_store.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "engine/sha256.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

// Numbers made durable at a time. A crash loses at most these, of 2^64.
constexpr std::uint64_t kReservedAtOnce = 4096;
// Keys of one index look-up: 16k tokens, about 2 ms cold.
constexpr std::size_t kLookupKeys = 128;

Status about(const BlockKey& key, const Status& status) {
  return {status.code(), "block " + engine::hex(key) + ": " + std::string(status.message()),
          std::string(status.hint())};
}

// Whether the stored descriptor is the one that the index and the caller expect.
Status check_descriptor(const BlockDescriptor& found, const BlockKey& key,
                        const BlockRecord& record, std::span<const TokenId> tokens,
                        std::size_t n_payload) {
  if (found.key != key) return corrupt("the value of another block is in its place");
  if (!std::ranges::equal(found.tokens, tokens)) return corrupt("it was made of other tokens");
  if (found.parent != record.parent || found.depth != record.depth ||
      found.provenance != record.provenance) {
    return corrupt("index and block disagree");
  }
  if (found.payload_bytes != n_payload || record.payload_bytes != n_payload) {
    return corrupt("payload of " + std::to_string(n_payload) + " bytes instead of " +
                   std::to_string(found.payload_bytes));
  }
  return {};
}

}  // namespace

// -- namespaces and numbers --

Status BlockStore::load_namespaces() {
  Status status;
  CAIRN_RETURN_IF_ERROR(
      storage_.scan(Family::kMeta, kNamespacePrefix, kNamespacePrefix,
                    [&](std::string_view key, std::string_view value) {
                      const Result<std::string> content = unseal_record(Family::kMeta, key, value);
                      Result<NamespaceRecord> record =
                          content.ok() ? decode_namespace_record(*content) : content.status();
                      status = record.status();
                      if (record.ok())
                        numbers_[record->number] = {*record, record->reserved_blocks};
                      return status.ok();
                    }));
  return status;
}

Status BlockStore::write_namespace(const NamespaceRecord& record, Durability durability) {
  const std::string key = namespace_key(root_key(record.kv_namespace));
  CAIRN_ASSIGN_OR_RETURN(std::string value, seal_record(Family::kMeta, key, encode(record)));
  WriteBatch batch;
  batch.put(Family::kMeta, key, std::move(value));
  return storage_.write(batch, durability);
}

Result<std::uint32_t> BlockStore::open_namespace(const KvNamespace& kv_namespace) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, numbers] : numbers_) {
    if (numbers.record.kv_namespace == kv_namespace) return number;
  }
  NamespaceRecord record;
  record.number = numbers_.empty() ? 1 : numbers_.rbegin()->first + 1;
  record.kv_namespace = kv_namespace;
  CAIRN_RETURN_IF_ERROR(write_namespace(record, Durability::kSynced));
  numbers_[record.number] = {record, 0};
  return record.number;
}

// The reservation is written before the batch that uses
// it, so no log that has the batch lacks the reservation.
Result<std::uint64_t> BlockStore::take_numbers(std::uint32_t kv_namespace, Claim& claim) {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(kv_namespace);
  if (found == numbers_.end()) {
    return invalid_argument("store: block namespace " + std::to_string(kv_namespace) +
                            " was not opened");
  }
  Numbers& numbers = found->second;
  const std::uint64_t first = numbers.next, end = first + claim.blocks_.size();
  if (end > numbers.record.reserved_blocks) {
    NamespaceRecord record = numbers.record;
    record.reserved_blocks = end + kReservedAtOnce;
    // Durable before the blocks, which go past the log.
    CAIRN_RETURN_IF_ERROR(write_namespace(record, Durability::kSynced));
    numbers.record = std::move(record);
  }
  numbers.next = end;
  claim.first_number_.emplace(kv_namespace, first);
  under_way_.insert(*claim.first_number_);
  return first;
}

// -- writing --

BlockStore::Claim::~Claim() {
  const std::lock_guard lock(store_.mutex_);
  for (const NewBlock* block : blocks_) store_.claimed_.erase(block->key);
  if (first_number_) store_.under_way_.extract(*first_number_);
  for (const BlockKey& key : relied_) {
    store_.touch_locked(key);
    const auto found = store_.relied_.find(key);
    if (--found->second == 0) store_.relied_.erase(found);
  }
}

Status BlockStore::claim_missing(std::span<const NewBlock> blocks, Claim& claim) {
  // Claimed first and looked up second: a block whose claim ended in between is in the index.
  {
    const std::lock_guard lock(mutex_);
    // Of what is noted here and in the claim nothing is without the other, whatever throws.
    claim.blocks_.reserve(blocks.size());
    claim.relied_.reserve(2 * blocks.size());
    for (const NewBlock& block : blocks) {
      if (claimed_.insert(block.key).second) claim.blocks_.push_back(&block);
      for (const BlockKey& key : {block.key, block.parent}) {
        ++relied_[key];
        claim.relied_.push_back(key);
      }
    }
  }
  std::vector<std::string> keys;
  keys.reserve(claim.blocks_.size());
  for (const NewBlock* block : claim.blocks_) keys.push_back(block_index_key(block->key));
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage_.multi_get(Family::kBlockIndex, keys));

  std::vector<const NewBlock*> missing;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const NewBlock* const block = claim.blocks_[i];
    if (entries[i] && decode_block_entry(keys[i], *entries[i]).ok()) {
      claimed_.erase(block->key);
    } else {
      missing.push_back(block);
    }
  }
  claim.blocks_ = std::move(missing);
  return {};
}

Status BlockStore::add(std::uint32_t kv_namespace, Claim& claim, WriteBatch& batch) {
  if (claim.blocks().empty()) return {};
  CAIRN_ASSIGN_OR_RETURN(std::uint64_t number, take_numbers(kv_namespace, claim));
  for (const NewBlock* block : claim.blocks()) {
    const std::string index_key = block_index_key(block->key);
    const BlockRecord record = {.kv_namespace = kv_namespace,
                                .number = number,
                                .parent = block->parent,
                                .depth = block->depth,
                                .provenance = block->provenance,
                                .n_tokens = static_cast<std::uint32_t>(block->tokens.size()),
                                .payload_bytes = block->payload.size()};
    CAIRN_ASSIGN_OR_RETURN(std::string entry,
                           seal_record(Family::kBlockIndex, index_key, encode(record)));
    batch.put(Family::kBlockIndex, index_key, std::move(entry));

    const BlockDescriptor descriptor = {.key = block->key,
                                        .parent = block->parent,
                                        .depth = block->depth,
                                        .provenance = block->provenance,
                                        .tokens = {block->tokens.begin(), block->tokens.end()},
                                        .payload_bytes = block->payload.size()};
    const std::string key = block_number_key(kv_namespace, number++);
    batch.put_bulk(Family::kBlocks, key,
                   seal_payload(Family::kBlocks, key, encode(descriptor), block->payload),
                   block->payload);
  }
  return {};
}

Status BlockStore::drop(const BlockKey& key) {
  const std::string index_key = block_index_key(key);
  WriteBatch batch;
  const Result<BlockRecord> record = find(key);
  if (record.status().code() == StatusCode::kNotFound) return {};
  if (record.ok()) {
    batch.remove(Family::kBlocks, block_number_key(record->kv_namespace, record->number));
  }
  batch.remove(Family::kBlockIndex, index_key);
  counters_.change([](StoreCounters& counters) { ++counters.blocks_corrupt; });
  return storage_.write(batch, Durability::kBuffered);
}

// -- removing --

// Destructors call it: where there is no memory to note one key, all count as touched.
void BlockStore::touch_locked(const BlockKey& key) noexcept {
  if (!watched_) return;
  try {
    touched_.insert(key);
  } catch (const std::bad_alloc&) {
    touched_all_ = true;
  }
}

void BlockStore::touch(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  touch_locked(key);
}

void BlockStore::Hold::set(const std::optional<BlockKey>& end) {
  if (end == end_) return;
  const std::lock_guard lock(store_.mutex_);
  if (end) {
    store_.held_.insert(*end);
    store_.touch_locked(*end);
  }
  if (end_) store_.held_.extract(*end_);
  end_ = end;
}

std::vector<BlockKey> BlockStore::held() const {
  const std::lock_guard lock(mutex_);
  return {held_.begin(), held_.end()};
}

BlockStore::Watch::Watch(BlockStore& store) : store_(store) {
  const std::lock_guard lock(store_.mutex_);
  store_.watched_ = true;
}

BlockStore::Watch::~Watch() {
  const std::lock_guard lock(store_.mutex_);
  store_.watched_ = store_.touched_all_ = false;
  store_.touched_.clear();
}

// The write is under the lock: a commit that claims one of these blocks finds it relied on or gone,
// never half of each.
Result<std::vector<bool>> BlockStore::Watch::remove(std::span<const UnneededBlock> blocks) {
  std::vector<bool> gone(blocks.size());
  const std::lock_guard lock(store_.mutex_);
  if (store_.touched_all_) return gone;
  WriteBatch batch;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const UnneededBlock& block = blocks[i];
    if (kept_.contains(block.key) || store_.touched_.contains(block.key) ||
        store_.relied_.contains(block.key)) {
      kept_.insert(block.parent);
      continue;
    }
    batch.remove(Family::kBlockIndex, block_index_key(block.key));
    gone[i] = true;
  }
  if (!batch.empty()) {
    CAIRN_RETURN_IF_ERROR(store_.storage_.write(batch, Durability::kBuffered));
  }
  return gone;
}

std::map<std::uint32_t, std::uint64_t> BlockStore::settled_numbers() const {
  const std::lock_guard lock(mutex_);
  std::map<std::uint32_t, std::uint64_t> settled;
  for (const auto& [number, numbers] : numbers_) settled.emplace(number, numbers.next);
  for (const auto& [kv_namespace, number] : under_way_) {
    settled[kv_namespace] = std::min(settled[kv_namespace], number);
  }
  return settled;
}

// -- reading --

Result<BlockRecord> BlockStore::find(const BlockKey& key) {
  touch(key);
  const std::string index_key = block_index_key(key);
  CAIRN_ASSIGN_OR_RETURN(const std::string entry, storage_.get(Family::kBlockIndex, index_key));
  return decode_block_entry(index_key, entry);
}

Result<bool> BlockStore::has(const BlockKey& key) {
  const Result<BlockRecord> record = find(key);
  if (record.ok()) return true;
  if (record.status().code() == StatusCode::kNotFound) return false;
  if (record.status().code() == StatusCode::kCorrupt) return false;
  return record.status();
}

Result<FoundBlocks> BlockStore::find_all(std::span<const BlockKey> keys) {
  FoundBlocks found;
  found.records.reserve(keys.size());
  for (std::size_t from = 0; from < keys.size(); from += kLookupKeys) {
    std::vector<std::string> index_keys;
    for (const BlockKey& key : keys.subspan(from, std::min(kLookupKeys, keys.size() - from))) {
      touch(key);
      index_keys.push_back(block_index_key(key));
    }
    CAIRN_ASSIGN_OR_RETURN(const auto entries, storage_.multi_get(Family::kBlockIndex, index_keys));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      std::optional<BlockRecord>& record = found.records.emplace_back();
      if (!entries[i]) continue;
      if (Result<BlockRecord> decoded = decode_block_entry(index_keys[i], *entries[i]);
          decoded.ok()) {
        record = std::move(*decoded);
      } else {
        ++found.n_corrupt;
        (void)drop(keys[from + i]);  // may fail on a store that cannot be written
      }
    }
  }
  return found;
}

Result<std::size_t> BlockStore::stored_prefix(std::span<const BlockKey> chain) {
  for (std::size_t from = 0; from < chain.size(); from += kLookupKeys) {
    std::vector<std::string> keys;
    for (const BlockKey& key : chain.subspan(from, std::min(kLookupKeys, chain.size() - from))) {
      touch(key);
      keys.push_back(block_index_key(key));
    }
    CAIRN_ASSIGN_OR_RETURN(const auto entries, storage_.multi_get(Family::kBlockIndex, keys));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i] || !decode_block_entry(keys[i], *entries[i]).ok()) return from + i;
    }
  }
  return chain.size();
}

// Removing a block removes both of its values at one instant, but they are read one after the
// other.
Status BlockStore::missing(const BlockKey& key, const BlockRecord& record) {
  const Result<BlockRecord> again = find(key);
  if (again.ok() && *again == record) return corrupt("indexed but not stored");
  if (again.ok()) return {StatusCode::kNotFound, "replaced while it was read"};
  return again.status();
}

Status BlockStore::view(std::span<const FoundBlock> blocks, const Visitor& visit) {
  std::vector<std::string> keys;
  keys.reserve(blocks.size());
  for (const FoundBlock& block : blocks) {
    keys.push_back(block_number_key(block.record.kv_namespace, block.record.number));
  }
  std::size_t n_seen = 0;
  Status failure;
  const auto look = [&](std::size_t i, std::optional<std::string_view> value) {
    const FoundBlock& block = blocks[i];
    const Result<PayloadView> view = value ? unseal_payload(Family::kBlocks, keys[i], *value)
                                           : Result<PayloadView>(missing(block.key, block.record));
    if (!(failure = view.status()).ok()) return false;
    const Result<BlockDescriptor> descriptor = decode_block_descriptor(view->descriptor);
    failure = descriptor.ok() ? check_descriptor(*descriptor, block.key, block.record, block.tokens,
                                                 view->payload.size())
                              : descriptor.status();
    if (!failure.ok()) return false;
    visit(std::as_bytes(std::span(view->payload)), static_cast<std::int64_t>(value->size()));
    n_seen = i + 1;
    return true;
  };
  const Status read = storage_.view(Family::kBlocks, keys, look);
  if (!read.ok()) failure = read;
  if (failure.ok()) return {};
  // Dropping may fail on a store that cannot be written; the block is then reported again.
  if (failure.code() == StatusCode::kCorrupt) (void)drop(blocks[n_seen].key);
  return about(blocks[n_seen].key, failure);
}

Result<Block> BlockStore::read(const BlockKey& key, std::span<const TokenId> tokens) {
  CAIRN_ASSIGN_OR_RETURN(const BlockRecord record, find(key));
  const std::string value_key = block_number_key(record.kv_namespace, record.number);
  Result<std::string> value = storage_.get(Family::kBlocks, value_key);
  if (value.status().code() == StatusCode::kNotFound) return missing(key, record);
  if (!value.ok()) return value.status();

  Block block;
  block.value = std::move(*value);
  CAIRN_ASSIGN_OR_RETURN(const PayloadView view,
                         unseal_payload(Family::kBlocks, value_key, block.value));
  block.payload_at = block.value.size() - view.payload.size();
  CAIRN_ASSIGN_OR_RETURN(block.descriptor, decode_block_descriptor(view.descriptor));
  CAIRN_RETURN_IF_ERROR(
      check_descriptor(block.descriptor, key, record, tokens, view.payload.size()));
  return block;
}

Result<Block> BlockStore::get(const BlockKey& key, std::span<const TokenId> tokens) {
  Result<Block> block = read(key, tokens);
  if (block.ok()) return block;
  // Dropping may fail on a store that cannot be written; the block is then reported again.
  if (block.status().code() == StatusCode::kCorrupt) (void)drop(key);
  return about(key, block.status());
}

}  // namespace cairn::session
