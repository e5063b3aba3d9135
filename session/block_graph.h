// The block index in memory: which block follows which.
#ifndef CAIRN_SESSION_BLOCK_GRAPH_H_
#define CAIRN_SESSION_BLOCK_GRAPH_H_

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cairn/status.h"
#include "session/block_key.h"
#include "session/records.h"
#include "session/storage.h"

namespace cairn::session {

using BlockKeySet = std::unordered_set<BlockKey, BlockKeyHash>;

// About 200 bytes a block. Confined to one thread.
class BlockGraph {
 public:
  // One scan of the index. Entries that do not decode are left out: they are as good as missing.
  static Result<BlockGraph> read(Storage& storage);

  void add(const BlockKey& key, const BlockRecord& record) { blocks_.emplace(key, record); }
  const std::unordered_map<BlockKey, BlockRecord, BlockKeyHash>& blocks() const { return blocks_; }
  // nullptr where there is none.
  const BlockRecord* find(const BlockKey& key) const;
  // From the first block of its chain to `key`. Empty where one of them is missing or their depths
  // are not 0, 1, 2, ...
  std::optional<std::vector<BlockKey>> chain(const BlockKey& key) const;
  // Adds the block and all before it, up to the first that is missing or in `reached` already.
  void mark(const BlockKey& key, BlockKeySet& reached) const;

 private:
  std::unordered_map<BlockKey, BlockRecord, BlockKeyHash> blocks_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_BLOCK_GRAPH_H_
