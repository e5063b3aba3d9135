// A session's live state and its ties to the store: the engine's sequence, the keys of its blocks,
// and "make the live state equal this prefix" with as little work as possible. Confined to the
// runtime's strand.
#ifndef CAIRN_SESSION_LIVE_SEQUENCE_H_
#define CAIRN_SESSION_LIVE_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/session.h"
#include "engine/decode_batch.h"
#include "engine/sequence.h"
#include "session/restore.h"
#include "session/session_store.h"

namespace cairn::session {

// Blocks of one commit, at most: 29 MB at the released shape.
inline constexpr std::size_t kCommitBlocks = 256;

class LiveSequence {
 public:
  LiveSequence(std::shared_ptr<const engine::LoadedModel> model, RestoreSource source);

  // Starts to make the live state equal `target` (not empty): extends what is live if target
  // continues it, else restores (restore.h), and plans the prefill of the rest. Run restore_step()
  // until it returns a report, then prefill_step() until prefilling() is false. The report is
  // complete but for causes that only the session's log knows. On error the live state is empty and
  // usable.
  void start_restore(std::vector<TokenId> target);
  Result<std::optional<ReuseReport>> restore_step();
  // What these two would come to. Changes nothing.
  Result<RestorePlan> plan(std::span<const TokenId> target) const;
  std::span<const TokenId> target() const { return target_; }
  // How many blocks of the target the last restore could have had, in memory or on disk.
  std::int64_t n_blocks_found() const { return n_blocks_found_; }
  bool prefilling() const { return sequence_ && sequence_->prefilling(); }
  // False: it was asked to stop, and nothing has changed.
  bool prefill_step(const engine::StopRequested& stop_requested);
  // Gives up a restore or a prefill that is not complete.
  void abandon();
  // A decode, in the middle of which other sequences' are done: the row to decode, and its outcome.
  // kCancelled: it was asked to stop, and nothing has changed.
  engine::DecodeRow decode_row(TokenId token, const engine::StopRequested& stop_requested);
  // Where drafts were verified with it (sequence().n_verified()), accept() has to follow.
  Status decoded(const engine::DecodeRow& row);
  void accept(std::int64_t n_rows);

  // What is live; only while is_live().
  const engine::Sequence& sequence() const { return *sequence_; }
  bool is_live() const { return sequence_ != nullptr; }
  // Memory that no other session can share; pages that others may share are in the pool's sum.
  std::int64_t private_bytes() const;
  // Until the next restore the collection may take blocks of what is live.
  void rest() { hold_.set(std::nullopt); }
  // Frees the memory. The next restore starts from the store.
  void release();

  // Adds whole blocks that are not yet stored to `commit`, kCommitBlocks of them at most; their
  // payloads live in the holder, which must outlive the commit. Call committed() after it
  // succeeded.
  struct Payloads {
    std::vector<engine::KvPagePtr> blocks;
    std::vector<std::byte> tail;
  };
  void add_blocks(Commit& commit, Payloads& payloads);
  std::int64_t n_new_blocks() const;  // whole and not yet stored, as far as known
  // A tail can be added: windows and logits are those of the present position.
  bool ready() const { return sequence_ && !broken_ && sequence_->ready(); }
  // Adds the head's tail at the present position, which must be ready(), standing at event
  // `sequence`. All blocks before it must be stored, or in the same commit.
  void add_tail(Commit& commit, std::uint64_t sequence, Payloads& payloads);
  void committed(const Commit& commit);
  // Whether enough was written since the last tail that another one at most doubles it.
  bool tail_is_due() const;
  // Whether the store lacks something of what is live.
  bool has_unstored_state() const;
  // The newest block of what is live and in the store, and how many there are up to it.
  BlockKey stored_chain_key() const;
  std::int64_t n_stored_blocks() const { return stored_blocks_; }

  // After an exception in the middle of a step: what is live is neither stored nor continued.
  void distrust() noexcept { broken_ = true; }

 private:
  // Keeps the blocks that are known to be stored from being collected.
  void hold_stored_blocks();
  // The same, after some may have been.
  Status hold_blocks_still_stored();
  bool is_continued_by(std::span<const TokenId> target) const;
  void clear();  // nothing live, and nothing of it known to be stored
  Result<ReuseReport> adopt(Restored restored);
  Result<ReuseReport> go_on_from_memory();
  Result<ReuseReport> plan_prefill(ReuseReport report);
  BlockKey chain_end() const { return chain_.empty() ? root_ : chain_.back(); }
  bool is_bounded(std::int64_t block) const {
    return first_bounded_ >= 0 && block >= first_bounded_;
  }
  // Names the blocks that have become whole, and shares their pages.
  void extend_chain();
  void share_page(std::int64_t block);

  std::shared_ptr<const engine::LoadedModel> model_;
  RestoreSource source_;
  BlockKey root_{};
  std::unique_ptr<engine::Sequence> sequence_;  // null = nothing is live
  bool broken_ = false;
  std::vector<BlockKey> chain_;       // of the sequence's whole blocks
  std::int64_t stored_blocks_ = 0;    // of chain_, in the store as far as this process knows
  std::int64_t first_bounded_ = -1;   // blocks from here on are of bounded provenance; -1 = none
  std::int64_t tail_position_ = -1;   // of the timeline's tail in the store, -1 = none known
  std::int64_t unshared_blocks_ = 0;  // whose pages are not the pool's

  BlockStore::Hold hold_;  // on the chain of the stored blocks

  std::int64_t n_blocks_found_ = 0;
  std::vector<TokenId> target_;                 // of the restore that is in progress or was last
  std::unique_ptr<Restore> restore_;            // null = none is in progress, or none was needed
  std::unique_ptr<engine::Sequence> previous_;  // while restore_: lends its pages through the pool
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_LIVE_SEQUENCE_H_
