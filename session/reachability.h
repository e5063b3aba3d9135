// Which stored blocks somebody needs, and how much: the block index as a compact graph in memory,
// and the sessions that reach into it.
#ifndef CAIRN_SESSION_REACHABILITY_H_
#define CAIRN_SESSION_REACHABILITY_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/status.h"
#include "session/block_key.h"
#include "session/records.h"
#include "session/storage.h"

namespace cairn::session {

inline constexpr std::uint32_t kNoBlock = std::numeric_limits<std::uint32_t>::max();

struct StoredBlock {
  BlockKey key{};
  std::uint32_t parent = kNoBlock;  // position in the graph; kNoBlock: none, or it is not stored
  std::uint32_t kv_namespace = 0, depth = 0, n_tokens = 0, n_children = 0;
  std::uint64_t number = 0;
  std::int64_t bytes = 0;   // on disk, about
  double value = 0;         // what its loss would cost, in microseconds times likelihood
  std::uint32_t owner = 0;  // the last that reached it
  bool reachable = false;   // from some root
  bool attached = false;    // every block before it in its chain is stored
  bool pinned = false;      // must not be evicted
};

// Confined to one thread.
class ReachGraph {
 public:
  // One scan of the index: about 0.3 s and 17 MB for 20 GB of blocks.
  static Result<ReachGraph> load(Storage& storage);

  void add(const BlockKey& key, const BlockRecord& record);
  // Call once, after the last add().
  void link();

  const std::vector<StoredBlock>& blocks() const { return blocks_; }
  std::uint32_t find(const BlockKey& key) const;  // kNoBlock where it is not stored

  // Makes the chain that ends in `key` reachable, worth `weight` more for each of its tokens. Of
  // several chains of one owner (1, 2, ...; call for them one after the other) a block counts in
  // the first only.
  void reach(const BlockKey& key, std::uint32_t owner, double weight);
  // Keeps the chain that ends in `key`.
  void pin(const BlockKey& key);

  // Keys of index entries that cannot be read.
  const std::vector<std::string>& damaged() const { return damaged_; }

 private:
  std::vector<StoredBlock> blocks_;
  std::vector<BlockKey> parents_;  // of blocks_, until link()
  std::unordered_map<BlockKey, std::uint32_t, BlockKeyHash> positions_;
  std::vector<std::string> damaged_;
};

// A chain of blocks that a session needs: it ends in `key`.
struct Root {
  enum class Kind : std::uint8_t { kHead, kMark, kBranch };
  BlockKey key{};
  Kind kind = Kind::kHead;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_REACHABILITY_H_
