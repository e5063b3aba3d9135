#include "session/block_graph.h"

#include <algorithm>

#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {

Result<BlockGraph> BlockGraph::read(Storage& storage) {
  BlockGraph graph;
  CAIRN_RETURN_IF_ERROR(
      storage.scan(Family::kBlockIndex, "", "", [&](std::string_view key, std::string_view value) {
        const std::optional<BlockKey> block = parse_block_index_key(key);
        const Result<BlockRecord> record = decode_block_entry(key, value);
        if (block && record.ok()) graph.add(*block, *record);
        return true;
      }));
  return graph;
}

const BlockRecord* BlockGraph::find(const BlockKey& key) const {
  const auto found = blocks_.find(key);
  return found == blocks_.end() ? nullptr : &found->second;
}

std::optional<std::vector<BlockKey>> BlockGraph::chain(const BlockKey& key) const {
  std::vector<BlockKey> keys = {key};
  const BlockRecord* record = find(key);
  while (record != nullptr && record->depth > 0) {
    keys.push_back(record->parent);
    const BlockRecord* const parent = find(record->parent);
    // Depths that fall by one also end the walk of a chain that bites its tail.
    if (parent != nullptr && parent->depth + 1 != record->depth) return std::nullopt;
    record = parent;
  }
  if (record == nullptr) return std::nullopt;
  std::ranges::reverse(keys);
  return keys;
}

void BlockGraph::mark(const BlockKey& key, BlockKeySet& reached) const {
  BlockKey at = key;
  for (const BlockRecord* record = find(at); record != nullptr; record = find(at)) {
    if (!reached.insert(at).second) return;
    at = record->parent;
  }
}

}  // namespace cairn::session
