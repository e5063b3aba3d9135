// KV blocks in the store: found by key through an index, kept under ascending numbers so that a
// session's blocks lie beside each other and compaction need not rewrite them.
#ifndef CAIRN_SESSION_BLOCK_STORE_H_
#define CAIRN_SESSION_BLOCK_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cairn/status.h"
#include "session/block_key.h"
#include "session/counters.h"
#include "session/records.h"
#include "session/storage.h"

namespace cairn::session {

// A block to store. Tokens and payload are borrowed until the commit returns.
struct NewBlock {
  BlockKey key{}, parent{};
  Provenance provenance = Provenance::kExact;
  std::uint32_t depth = 0;          // blocks before it in its chain
  std::span<const TokenId> tokens;  // kBlockTokens of them
  std::span<const std::byte> payload;
};

struct Block {
  BlockDescriptor descriptor;
  std::string value;  // as stored; owns the payload
  std::size_t payload_at = 0;

  std::span<const std::byte> payload() const {
    return std::as_bytes(std::span(value)).subspan(payload_at);
  }
};

// What the index has of some keys.
struct FoundBlocks {
  std::vector<std::optional<BlockRecord>> records;  // one for each key, in their order
  std::int64_t n_corrupt = 0;                       // entries that did not check; they are dropped
};

// A block that the index has, to be looked at. Tokens are borrowed.
struct FoundBlock {
  BlockKey key{};
  std::span<const TokenId> tokens;
  BlockRecord record;
};

// A block that may go.
struct UnneededBlock {
  BlockKey key{}, parent{};  // parent: as stored; any other value if it is not
};

// Safe from any thread. A cache: whatever does not check is dropped, reported as kCorrupt once, and
// kNotFound from then on.
class BlockStore {
 public:
  // Borrows both.
  BlockStore(Storage& storage, Counters& counters) : storage_(storage), counters_(counters) {}
  Status load_namespaces();

  // The number under which blocks of this namespace are kept; made at the first call.
  Result<std::uint32_t> open_namespace(const KvNamespace& kv_namespace);

  // The block with this key, whole and made of these tokens.
  Result<Block> get(const BlockKey& key, std::span<const TokenId> tokens);
  // Looks at the blocks one after another, without copying them. `visit` gets the payload of each
  // that checks and the bytes that were read for it; the payload dies when it returns. Ends at the
  // first block that fails: kCorrupt (it is dropped), kNotFound (it was removed since it was
  // found).
  using Visitor =
      std::function<void(std::span<const std::byte> payload, std::int64_t n_bytes_read)>;
  Status view(std::span<const FoundBlock> blocks, const Visitor& visit);
  // Where the block is, from the index alone.
  Result<BlockRecord> find(const BlockKey& key);
  Result<bool> has(const BlockKey& key);
  // The same of many.
  Result<FoundBlocks> find_all(std::span<const BlockKey> keys);
  // How many keys of a chain, from its first on, are in the index without a gap.
  Result<std::size_t> stored_prefix(std::span<const BlockKey> chain);
  // Forgets a block that turned out to be of no use. Not an error if it is not there.
  Status drop(const BlockKey& key);

  // Blocks of one commit that nobody has stored or is about to store. While it lives, other commits
  // skip them: the first writer wins. What the commit relies on (blocks it skipped, parents) is not
  // removed meanwhile. Destroy it when the batch is written or given up.
  class Claim {
   public:
    explicit Claim(BlockStore& store) : store_(store) {}
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim();

    const std::vector<const NewBlock*>& blocks() const { return blocks_; }

   private:
    friend class BlockStore;
    BlockStore& store_;
    std::vector<const NewBlock*> blocks_;
    std::vector<BlockKey> relied_;
    std::optional<std::pair<std::uint32_t, std::uint64_t>> first_number_;  // with its namespace
  };
  Status claim_missing(std::span<const NewBlock> blocks, Claim& claim);
  // Adds the claimed blocks to `batch`. kInvalidArgument for a namespace that is not open.
  Status add(std::uint32_t kv_namespace, Claim& claim, WriteBatch& batch);

  // Keeps a chain of blocks from being removed while its owner restores it or builds on it.
  class Hold {
   public:
    explicit Hold(BlockStore& store) : store_(store) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { set(std::nullopt); }

    // The chain that ends here instead of the one before; nothing: none.
    void set(const std::optional<BlockKey>& end);

   private:
    BlockStore& store_;
    std::optional<BlockKey> end_;
  };
  std::vector<BlockKey> held() const;  // ends of the chains that are held

  // Removes what was found to be of no need while a watch was kept: whatever somebody looked at or
  // began to build on since the watch began stays, with all that it follows. Only the index forgets
  // the blocks; their payloads are garbage then. One watch at a time.
  class Watch {
   public:
    explicit Watch(BlockStore& store);
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch();

    // Children before their parents, over all calls. Returns which of them are gone.
    Result<std::vector<bool>> remove(std::span<const UnneededBlock> blocks);

   private:
    BlockStore& store_;
    std::unordered_set<BlockKey, BlockKeyHash> kept_;  // and so must be the blocks they follow
  };

  // By namespace, a number below which no commit is under way: what lies there and is not in the
  // index, when that is read later, is garbage.
  std::map<std::uint32_t, std::uint64_t> settled_numbers() const;

 private:
  // Numbers are handed out one by one and made durable many at a time, so that none is used twice
  // after a crash.
  struct Numbers {
    NamespaceRecord record;
    std::uint64_t next = 0;
  };

  // What is wrong with a block that is indexed as `record` says and not stored.
  Status missing(const BlockKey& key, const BlockRecord& record);
  Result<Block> read(const BlockKey& key, std::span<const TokenId> tokens);
  // The first of as many consecutive numbers as the claim has blocks.
  Result<std::uint64_t> take_numbers(std::uint32_t kv_namespace, Claim& claim);
  Status write_namespace(const NamespaceRecord& record, Durability durability);

  void touch(const BlockKey& key);
  void touch_locked(const BlockKey& key) noexcept;

  Storage& storage_;
  Counters& counters_;
  mutable std::mutex mutex_;                  // guards what follows
  std::map<std::uint32_t, Numbers> numbers_;  // by namespace number
  std::set<BlockKey> claimed_;
  std::unordered_map<BlockKey, int, BlockKeyHash> relied_;            // by claims, how often
  std::multiset<std::pair<std::uint32_t, std::uint64_t>> under_way_;  // first_number_ of claims
  std::multiset<BlockKey> held_;
  bool watched_ = false, touched_all_ = false;
  std::unordered_set<BlockKey, BlockKeyHash> touched_;  // since the watch began
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_BLOCK_STORE_H_
