// A session's live state and its ties to the store: the engine's sequence, the keys of its blocks,
// and "make the live state equal this prefix" with as little work as possible. Confined to the
// runtime's strand.
#ifndef CAIRN_SESSION_LIVE_SEQUENCE_H_
#define CAIRN_SESSION_LIVE_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/session.h"
#include "engine/sequence.h"
#include "session/session_store.h"

namespace cairn::session {

inline constexpr std::uint32_t kKvFormatVersion = 1;  // FORMAT.md: KV payload and tail payload

// Where a session's state lives and what it may be restored from.
struct RestoreSource {
  SessionStore* store = nullptr;
  SessionId session;
  KvNamespace kv_namespace;
  RestorePolicy policy = RestorePolicy::kExact;
};

class LiveSequence {
 public:
  LiveSequence(std::shared_ptr<const engine::LoadedModel> model, RestoreSource source);

  // Starts to make the live state equal `target` (not empty): extends what is live if target
  // continues it, else restores the tail or, where that saves more, the longest stored chain of
  // blocks, and plans the prefill of the rest. Run prefill_step() until prefilling() is false. The
  // report is complete but for causes that only the session's log knows. On error the live state is
  // empty and usable.
  Result<ReuseReport> start_restore(std::span<const TokenId> target);
  bool prefilling() const { return sequence_->prefilling(); }
  void prefill_step() { sequence_->prefill_step(); }
  void abandon_prefill() { sequence_->abandon_prefill(); }
  Status decode(TokenId token) { return sequence_->decode(token); }

  const engine::Sequence& sequence() const { return *sequence_; }

  // Adds the blocks that are whole and not yet stored to `commit`; their payloads live in the
  // returned holder, which must outlive the commit. Call committed() after it succeeded.
  struct Payloads {
    std::vector<std::vector<std::byte>> blocks;
    std::vector<std::byte> tail;
  };
  void add_blocks(Commit& commit, Payloads& payloads);
  bool has_new_blocks() const { return sequence_->n_blocks() > stored_blocks_; }
  // A tail can be added: windows and logits are those of the present position.
  bool ready() const { return !broken_ && sequence_->ready(); }
  // Adds the tail at the present position, which must be ready(), standing at event `sequence`.
  void add_tail(Commit& commit, std::uint64_t sequence, Payloads& payloads);
  void committed(const Commit& commit);
  // Whether enough was written since the last tail that another one at most doubles it.
  bool tail_is_due() const;

  // After an exception in the middle of a step: what is live is neither stored nor continued.
  void distrust() noexcept { broken_ = true; }

 private:
  // Outcome of one way to restore.
  struct Restored {
    std::int64_t tokens = 0;
    bool corrupt = false;  // something stored did not check and was dropped
  };
  void reset();  // forgets everything live
  Result<ReuseReport> plan_restore(std::span<const TokenId> target);
  // Whether the blocks of `target` in the store save more than the tail does, replay included.
  Result<bool> blocks_beat_tail(std::span<const TokenId> target) const;
  // Blocks in the store of which target's chain has no gap.
  Result<std::int64_t> stored_chain(std::span<const TokenId> target) const;
  Result<Restored> restore_tail(std::span<const TokenId> target);
  Result<Restored> restore_blocks(std::span<const TokenId> target);
  // Imports the block of `tokens` that follows chain_ if it is stored under `provenance`.
  Result<bool> import_next_block(std::span<const TokenId> tokens, Provenance provenance,
                                 bool* corrupt);
  BlockKey next_key(std::span<const TokenId> tokens, Provenance provenance) const;
  BlockKey chain_end() const;
  void extend_chain();

  std::shared_ptr<const engine::LoadedModel> model_;
  RestoreSource source_;
  BlockKey root_{};
  std::unique_ptr<engine::Sequence> sequence_;
  bool broken_ = false;
  std::vector<BlockKey> chain_;      // of the sequence's whole blocks
  std::int64_t stored_blocks_ = 0;   // of chain_, in the store as far as this process knows
  std::int64_t first_bounded_ = -1;  // blocks from here on are of bounded provenance; -1 = none
  std::int64_t tail_position_ = -1;  // of the timeline's tail in the store, -1 = none known
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_LIVE_SEQUENCE_H_
