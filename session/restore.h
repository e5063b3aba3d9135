// One restore in progress: from what a store, and other live sessions, hold of a prefix to a
// sequence that stands at the end of as much of it as pays. Confined to the runtime's strand.
#ifndef CAIRN_SESSION_RESTORE_H_
#define CAIRN_SESSION_RESTORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/session.h"
#include "engine/sequence.h"
#include "session/block_reader.h"
#include "session/page_pool.h"
#include "session/session_store.h"

namespace cairn::session {

// Where a session's state lives and what it may be restored from.
struct RestoreSource {
  SessionStore* store = nullptr;
  PagePool* pool = nullptr;
  SessionId session;
  KvNamespace kv_namespace;
  RestorePolicy policy = RestorePolicy::kExact;
};

// What a restore came to: a sequence whose tokens are a prefix of the target, perhaps none, and
// what it took to get there.
struct Restored {
  std::unique_ptr<engine::Sequence> sequence;
  std::vector<BlockKey> chain;      // of its whole blocks
  std::int64_t stored_blocks = 0;   // of chain, from the first on, that are in the store
  std::int64_t first_bounded = -1;  // blocks from here on are of bounded provenance; -1 = none
  std::int64_t tail_position = -1;  // of the tail that it stands on; -1 = none
  std::int64_t from_memory = 0;     // tokens of pages that other sequences hold
  std::int64_t n_blocks_found = 0;  // of the target's chain, without a gap
  std::int64_t n_bytes_read = 0;    // values of blocks and tails, of no use in the end included
  std::int64_t n_blocks_corrupt = 0, n_tails_corrupt = 0;  // did not check and were dropped
};

// What a restore would do, and what would be left to compute.
struct RestorePlan {
  ReuseReport report;  // but for causes and times
  std::int64_t n_blocks_found = 0;
  std::int64_t memory_bytes = 0;  // of the sequence at the end of the target
};

// Candidates are the tails of the session and of those that it was forked from, and the longest
// chain of blocks; the one that leaves the fewest rows to compute is taken. When something of it
// turns out to be damaged or gone, the choice is made again without it.
class Restore {
 public:
  // Borrows what `source` points to. `target`: the whole prefix, not empty.
  Restore(std::shared_ptr<const engine::LoadedModel> model, const RestoreSource& source,
          std::vector<TokenId> target);

  // The next piece: a choice, or one batch of blocks. True when the restore is complete. An error
  // ends it: the storage failed otherwise than for one value.
  Result<bool> step();
  // The choice alone, instead of all steps. Nothing is imported; a tail may be read.
  Result<RestorePlan> plan();
  const std::vector<TokenId>& target() const { return target_; }
  Restored take() { return std::move(restored_); }  // once, when complete

 private:
  // A block of the chain that is to be imported.
  struct ChainBlock {
    BlockKey key{};
    Provenance provenance = Provenance::kExact;
    std::optional<BlockRecord> record;  // in the store
    engine::KvPagePtr page;             // at hand
    bool from_memory = false;
  };
  using Chain = std::vector<ChainBlock>;
  struct Candidate {
    Chain chain;
    std::optional<Tail> tail;
    std::int64_t first_bounded = -1;
  };

  Result<Candidate> choose();
  // The blocks that can be had after `parent`, from number `first` to below `end`, without a gap.
  Result<Chain> find_chain(const BlockKey& parent, Provenance provenance, std::int64_t first,
                           std::int64_t end);
  // The longest chain of the target, of which `exact` is the part that is exact.
  Result<Candidate> find_blocks(const Chain& exact);
  Result<std::vector<TailRecord>> find_tails();
  // Whether the tail, read whole, stands on blocks that can be had; `candidate` is it then.
  Result<bool> open_tail(const TailRecord& record, const Chain& exact, Candidate& candidate);
  std::int64_t rows_after(std::int64_t n_blocks) const;  // to compute behind blocks without a tail

  void begin(Candidate candidate);
  Result<bool> import_blocks();
  Status import_page(std::int64_t number, const ChainBlock& block);
  bool import_tail();  // false: it did not fit the model, choose again
  // The block that is missing or damaged is not asked for again; other errors are returned.
  Result<bool> give_up(const BlockKey& block, const Status& why);

  std::span<const TokenId> block_tokens(std::int64_t block) const;
  std::span<const TokenId> open_tokens(const TailRecord& tail) const;
  BlockKey key_before(const Chain& chain, std::int64_t block) const;  // root_ before the first

  const std::shared_ptr<const engine::LoadedModel> model_;
  const RestoreSource source_;
  const std::vector<TokenId> target_;
  const BlockKey root_;

  // Of no use, found out in this restore. Kept here too: a store may be unable to drop them.
  std::set<BlockKey> refused_blocks_;
  std::set<std::pair<SessionId, std::uint64_t>> refused_tails_;
  // Read in this restore, for the case that the choice is made again.
  std::unordered_map<BlockKey, engine::KvPagePtr, BlockKeyHash> read_;

  BlockStore::Hold hold_;                // on the candidate's chain: none of it is collected
  std::optional<Candidate> candidate_;   // being imported
  std::unique_ptr<BlockReader> reader_;  // of its blocks that are not at hand
  BlockReader::Batch batch_;
  std::size_t batch_at_ = 0;  // the next page of batch_
  Restored restored_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_RESTORE_H_
