// One live timeline: tokens, KV cache, logits of the last position. The engine's unit of work; it
// knows no disk and no session. Confined to the runtime's strand.
#ifndef CAIRN_ENGINE_SEQUENCE_H_
#define CAIRN_ENGINE_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cairn/status.h"
#include "engine/activations.h"
#include "engine/draft.h"
#include "engine/forward.h"
#include "engine/kv_cache.h"
#include "engine/loaded_model.h"
#include "engine/pass_plan.h"

namespace cairn::engine {

struct PrefillOptions {
  DecoderPass decoder = DecoderPass::kHalo;
  bool bounded_restore = false;  // windows lost in a restore may come from a bounded replay
  // Keep logits of every row from this position on; -1 = the last row. Of rows that the pass does
  // not take through every layer they mean nothing: with kHalo, of all but the last.
  std::int64_t logits_from = -1;
};

class Sequence {
 public:
  explicit Sequence(std::shared_ptr<const LoadedModel> model);

  const LoadedModel& model() const { return *model_; }
  // Tokens whose global KV is in the cache.
  std::span<const TokenId> tokens() const {
    return {tokens_.data(), static_cast<std::size_t>(end_)};
  }
  std::int64_t position() const { return end_; }
  // Logits of the last position are there and the windows are those of the position: the next step
  // is a plain decode.
  bool ready() const { return ready_ && !is_planned_; }
  // [vocab] of the last position; only when ready().
  std::span<const float> logits() const { return logits_; }
  // Rows of the last prefill from its logits_from on: [rows, vocab].
  std::span<const float> logits_rows() const { return logits_rows_; }
  // False once a bounded replay took part in what the cache holds.
  bool exact() const { return exact_; }

  // --- Prefill. start_prefill plans the pass over what is missing plus `suffix`; each step runs
  // one chunk. Stopping between steps is allowed: global KV of finished chunks stays, windows are
  // rebuilt by the next prefill as far as needed. An empty suffix recomputes windows and logits. A
  // step that is asked to stop returns false and has changed nothing.
  Status start_prefill(std::span<const TokenId> suffix, const PrefillOptions& options = {});
  bool prefilling() const { return is_planned_; }
  bool prefill_step(const StopRequested& stop_requested = {});
  void abandon_prefill();
  // What replayed() would be after start_prefill of tokens up to position `end`.
  std::int64_t replay_to(std::int64_t end, const PrefillOptions& options = {}) const;
  std::int64_t prefill_next() const { return next_; }  // next position to run
  // Whether windows and logits at the end of the planned pass are those of an unbroken run. Only
  // while prefilling().
  bool plan_is_exact() const { return plan_.exact; }
  // Positions below the planned start of new work that the plan runs again for their windows.
  std::int64_t replayed() const { return replayed_; }

  // start_prefill and all of its steps. kCancelled: it was asked to stop; finished chunks stay.
  Status prefill(std::span<const TokenId> suffix, const PrefillOptions& options = {},
                 const StopRequested& stop_requested = {});
  // One token more. Equals prefill of one token. kCancelled: nothing has changed.
  Status decode(TokenId token, const StopRequested& stop_requested = {}) {
    return prefill({&token, 1}, {}, stop_requested);
  }

  // --- Drafts. A pass over a token and drafts after it (decode_together) leaves the sequence where
  // it was, not ready(), with logits of every row, until accept() or abandon_prefill().

  // Guesses the tokens after `anchor`, the token chosen for position(), which is not computed yet.
  // Changes nothing. kUnsupported: the model has no drafts. kInvalidArgument: not ready(), or an id
  // outside the vocabulary.
  Status propose(TokenId anchor, DraftProposal& out) const;
  // How many drafts the next pass can take.
  std::int64_t max_drafts() const;
  std::int64_t n_verified() const { return n_verified_; }  // rows that wait for accept(); 0 = none
  // [vocab] after row `row`, and the tokens up to it: tokens() and those of the pass.
  std::span<const float> verified_logits(std::int64_t row) const;
  std::span<const TokenId> verified_tokens(std::int64_t row) const;
  // The first `n_rows` of them, 1 or more, are as if decoded one by one; the others leave no trace.
  void accept(std::int64_t n_rows);

  // --- State for a store.
  std::int64_t block_bytes() const { return cache_.block_bytes(); }
  std::int64_t n_blocks() const { return end_ / kBlockTokens; }
  // Global KV of whole block `block` < n_blocks(), bytes as in the store (session/FORMAT.md "KV
  // payload"). Other sequences of this model may take it; any thread may hold and read it.
  KvPagePtr page(std::int64_t block) const { return cache_.page(block); }
  // Holds `page`, of equal content, instead of its own, which is freed if nobody else holds it.
  void replace_page(std::int64_t block, KvPagePtr page) {
    cache_.replace_page(block, std::move(page));
  }
  // A page of bytes that a store kept, copied. kCorrupt if the size is not block_bytes().
  Result<KvPagePtr> make_page(std::span<const std::byte> bytes) const;
  // Appends the next block of a prefix, of `tokens`; only before anything was computed after it.
  // `page`: of a sequence or of make_page() of this model. `exact`: its rows are those of an
  // unbroken computation. kInvalidArgument, and nothing changed, if tokens are not one block
  // of the vocabulary.
  Status import_page(std::span<const TokenId> tokens, KvPagePtr page, bool exact);
  // make_page() and import_page().
  Status import_block(std::span<const TokenId> tokens, std::span<const std::byte> block,
                      bool exact);
  // Everything besides blocks at a ready position.
  std::vector<std::byte> export_tail() const;
  // `suffix`: the tokens after the last imported block. After success the sequence is ready.
  // On an error the sequence is unusable and must be dropped.
  Status import_tail(std::span<const TokenId> suffix, std::span<const std::byte> tail);

  // Drops windows and logits, as if only the global KV had been restored.
  void forget_windows();

  const KvCache& cache() const { return cache_; }
  // Bytes of memory, pages included however many sequences hold them.
  std::int64_t bytes() const { return private_bytes() + n_blocks() * block_bytes(); }
  // What no other sequence can share: windows, open block, logits, tokens.
  std::int64_t private_bytes() const;

 private:
  friend class DecodeBatch;

  ForwardInput step_input(std::int64_t n);  // the next n positions of the plan
  // Around a step of n positions that may be asked to stop.
  void save_step(std::int64_t n) { cache_.save_open_state(next_, n, before_step_); }
  void end_step(std::int64_t n);
  void undo_step(bool was_ready);
  // Only when max_drafts() are not exceeded and there are some.
  Status start_verify(TokenId token, std::span<const TokenId> drafts);
  void end_verify();
  void cut_tokens(std::int64_t end);

  PlanRequest request_to(std::int64_t end, const PrefillOptions& options) const;
  // kInvalidArgument for ids outside the vocabulary.
  Status check_tokens(std::span<const TokenId> tokens) const;
  void append_tokens(std::span<const TokenId> tokens);

  std::shared_ptr<const LoadedModel> model_;
  KvCache cache_;
  std::vector<TokenId> tokens_;                           // planned ones included
  std::vector<std::int32_t> classes_;                     // Engram classes of tokens_
  std::int64_t end_ = 0;                                  // tokens with global KV
  bool encoder_windows_ = true, decoder_windows_ = true;  // live at end_
  bool ready_ = false, exact_ = true;
  std::vector<float> logits_, logits_rows_;
  PassPlan plan_;  // while is_planned_
  bool is_planned_ = false;
  KvCache::OpenState before_step_;
  std::int64_t next_ = 0, replayed_ = 0;
  std::int64_t n_verified_ = 0;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SEQUENCE_H_
