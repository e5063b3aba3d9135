// Reachability instead of reference counts: counts drift after any rollback, and the index, about
// 95 bytes a block, is small enough to be read whole whenever room is needed.
#include "session/reachability.h"

#include <algorithm>
#include <numeric>

#include "session/sealed_value.h"

namespace cairn::session {
namespace {

// Of the index entry and the descriptor of a block, beside its payload.
constexpr std::int64_t kBlockOverheadBytes = 900;

}  // namespace

Result<ReachGraph> ReachGraph::load(Storage& storage) {
  ReachGraph graph;
  CAIRN_RETURN_IF_ERROR(
      storage.scan(Family::kBlockIndex, "", "", [&](std::string_view key, std::string_view value) {
        const Result<std::string> content = unseal_record(Family::kBlockIndex, key, value);
        const Result<BlockRecord> record =
            content.ok() ? decode_block_record(*content) : content.status();
        BlockKey block{};
        if (record.ok() && key.size() == block.size()) {
          std::copy(key.begin(), key.end(), block.begin());
          graph.add(block, *record);
        } else if (record.status().code() == StatusCode::kCorrupt) {
          graph.damaged_.emplace_back(key);
        }
        return true;
      }));
  graph.link();
  return graph;
}

void ReachGraph::add(const BlockKey& key, const BlockRecord& record) {
  positions_.emplace(key, static_cast<std::uint32_t>(blocks_.size()));
  StoredBlock& block = blocks_.emplace_back();
  block.key = key;
  block.kv_namespace = record.kv_namespace;
  block.depth = record.depth;
  block.n_tokens = record.n_tokens;
  block.number = record.number;
  block.bytes = static_cast<std::int64_t>(record.payload_bytes) + kBlockOverheadBytes;
  parents_.push_back(record.parent);
}

void ReachGraph::link() {
  std::vector<std::uint32_t> by_depth(blocks_.size());
  std::iota(by_depth.begin(), by_depth.end(), 0U);
  std::ranges::sort(by_depth, {}, [&](std::uint32_t i) { return blocks_[i].depth; });
  for (const std::uint32_t i : by_depth) {
    StoredBlock& block = blocks_[i];
    // The parent of a first block is the root key of its namespace, which is no block.
    const std::uint32_t parent = block.depth == 0 ? kNoBlock : find(parents_[i]);
    block.attached = block.depth == 0;
    if (parent == kNoBlock || blocks_[parent].depth + 1 != block.depth) continue;
    block.parent = parent;
    block.attached = blocks_[parent].attached;
    ++blocks_[parent].n_children;
  }
  parents_ = {};
}

std::uint32_t ReachGraph::find(const BlockKey& key) const {
  const auto found = positions_.find(key);
  return found == positions_.end() ? kNoBlock : found->second;
}

void ReachGraph::reach(const BlockKey& key, std::uint32_t owner, double weight) {
  for (std::uint32_t i = find(key); i != kNoBlock; i = blocks_[i].parent) {
    StoredBlock& block = blocks_[i];
    if (block.owner == owner) return;
    block.owner = owner;
    block.reachable = true;
    if (block.attached) block.value += weight * block.n_tokens;
  }
}

void ReachGraph::pin(const BlockKey& key) {
  for (std::uint32_t i = find(key); i != kNoBlock && !blocks_[i].pinned; i = blocks_[i].parent) {
    blocks_[i].pinned = true;
  }
}

}  // namespace cairn::session
