// Keys of blocks are computed when blocks become whole, so that their pages can be shared with
// other sessions at once. What the store has of them is known from what was restored and committed
// here; offering a block that is stored already costs one look-up.
#include "session/live_sequence.h"

#include <algorithm>
#include <utility>

#include "engine/model_config.h"
#include "engine/sizes.h"
#include "session/tail_payload.h"

namespace cairn::session {
namespace {

static_assert(kBlockTokens == engine::kBlockTokens);

using engine::usize;

std::span<const TokenId> block_tokens(std::span<const TokenId> tokens, std::int64_t block) {
  return tokens.subspan(usize(block * kBlockTokens), usize(kBlockTokens));
}

}  // namespace

LiveSequence::LiveSequence(std::shared_ptr<const engine::LoadedModel> model, RestoreSource source)
    : model_(std::move(model)),
      source_(std::move(source)),
      root_(root_key(source_.kv_namespace)),
      hold_(source_.store->blocks()) {}

void LiveSequence::clear() {
  rest();
  sequence_.reset();
  broken_ = false;
  chain_.clear();
  stored_blocks_ = 0;
  first_bounded_ = -1;
  tail_position_ = -1;
  unshared_blocks_ = 0;
}

void LiveSequence::release() {
  abandon();
  clear();
}

void LiveSequence::abandon() {
  restore_.reset();
  previous_.reset();
  if (sequence_) sequence_->abandon_prefill();
}

std::int64_t LiveSequence::private_bytes() const {
  if (!sequence_) return 0;
  return sequence_->private_bytes() + unshared_blocks_ * sequence_->block_bytes();
}

// -- restoring --

void LiveSequence::start_restore(std::vector<TokenId> target) {
  abandon();
  target_ = std::move(target);
  if (is_continued_by(target_)) return;
  if (sequence_ && !broken_) previous_ = std::move(sequence_);
  clear();
  restore_ = std::make_unique<Restore>(model_, source_, target_);
}

bool LiveSequence::is_continued_by(std::span<const TokenId> target) const {
  if (!sequence_ || broken_) return false;
  const std::span<const TokenId> live = sequence_->tokens();
  return !live.empty() && live.size() <= target.size() &&
         std::equal(live.begin(), live.end(), target.begin());
}

Result<RestorePlan> LiveSequence::plan(std::span<const TokenId> target) const {
  if (!is_continued_by(target)) {
    return Restore(model_, source_, {target.begin(), target.end()}).plan();
  }
  engine::PrefillOptions options;
  options.bounded_restore = source_.policy == RestorePolicy::kBounded;
  RestorePlan plan;
  plan.n_blocks_found = sequence_->n_blocks();
  ReuseReport& report = plan.report;
  report.prompt_tokens = static_cast<std::int64_t>(target.size());
  report.from_memory = sequence_->position();
  report.prefilled = report.prompt_tokens - report.from_memory;
  report.replayed = sequence_->replay_to(report.prompt_tokens, options);
  report.exact = first_bounded_ < 0;
  plan.memory_bytes =
      sequence_->bytes() + report.prefilled * sequence_->block_bytes() / kBlockTokens;
  return plan;
}

Result<std::optional<ReuseReport>> LiveSequence::restore_step() {
  Result<ReuseReport> report = Status();
  if (restore_) {
    const Result<bool> done = restore_->step();
    if (done.ok() && !*done) return std::optional<ReuseReport>();
    report = done.ok() ? adopt(restore_->take()) : done.status();
    restore_.reset();
    previous_.reset();
  } else {
    report = go_on_from_memory();
  }
  if (report.ok()) return std::optional(std::move(*report));
  clear();
  return report.status();
}

Result<ReuseReport> LiveSequence::go_on_from_memory() {
  CAIRN_RETURN_IF_ERROR(hold_blocks_still_stored());
  n_blocks_found_ = sequence_->n_blocks();
  ReuseReport report;
  report.from_memory = sequence_->position();
  return plan_prefill(std::move(report));
}

Status LiveSequence::hold_blocks_still_stored() {
  hold_stored_blocks();
  CAIRN_ASSIGN_OR_RETURN(
      const std::size_t n_stored,
      source_.store->stored_prefix(std::span(chain_).first(usize(stored_blocks_))));
  stored_blocks_ = static_cast<std::int64_t>(n_stored);
  hold_stored_blocks();
  return {};
}

void LiveSequence::hold_stored_blocks() {
  hold_.set(stored_blocks_ == 0 ? std::nullopt : std::optional(chain_[usize(stored_blocks_ - 1)]));
}

Result<ReuseReport> LiveSequence::adopt(Restored restored) {
  sequence_ = std::move(restored.sequence);
  chain_ = std::move(restored.chain);
  stored_blocks_ = restored.stored_blocks;
  first_bounded_ = restored.first_bounded;
  tail_position_ = restored.tail_position;
  n_blocks_found_ = restored.n_blocks_found;
  hold_stored_blocks();
  for (std::int64_t block = 0; block < sequence_->n_blocks(); ++block) share_page(block);
  ReuseReport report;
  report.from_memory = restored.from_memory;
  report.from_disk = sequence_->position() - restored.from_memory;
  report.tail_restored = restored.tail_position >= 0;
  report.bytes_read = restored.n_bytes_read;
  if (restored.n_blocks_corrupt + restored.n_tails_corrupt > 0) report.cause = MissCause::kCorrupt;
  return plan_prefill(std::move(report));
}

Result<ReuseReport> LiveSequence::plan_prefill(ReuseReport report) {
  const std::int64_t reused = sequence_->position();
  report.prompt_tokens = static_cast<std::int64_t>(target_.size());
  report.prefilled = report.prompt_tokens - reused;
  engine::PrefillOptions options;
  options.bounded_restore = source_.policy == RestorePolicy::kBounded;
  CAIRN_RETURN_IF_ERROR(
      sequence_->start_prefill(std::span(target_).subspan(usize(reused)), options));
  report.replayed = sequence_->prefilling() ? sequence_->replayed() : 0;
  const bool exact_plan = !sequence_->prefilling() || sequence_->plan_is_exact();
  if (!exact_plan && first_bounded_ < 0) {
    first_bounded_ = static_cast<std::int64_t>(chain_.size());
  }
  // Not the sequence's own word: a tail may hold a bounded state without a whole block of it.
  report.exact = first_bounded_ < 0;
  return report;
}

// -- going on --

bool LiveSequence::prefill_step(const engine::StopRequested& stop_requested) {
  if (!sequence_->prefill_step(stop_requested)) return false;
  extend_chain();
  return true;
}

engine::DecodeRow LiveSequence::decode_row(TokenId token,
                                           const engine::StopRequested& stop_requested) {
  return {.sequence = sequence_.get(),
          .token = token,
          .stop_requested = stop_requested,
          .status = Status()};
}

Status LiveSequence::decoded(const engine::DecodeRow& row) {
  if (row.status.ok()) {
    if (sequence_->n_verified() == 0) extend_chain();
  } else if (row.status.code() != StatusCode::kCancelled) {
    distrust();
  }
  return row.status;
}

void LiveSequence::accept(std::int64_t n_rows) {
  sequence_->accept(n_rows);
  extend_chain();
}

void LiveSequence::extend_chain() {
  const std::span<const TokenId> tokens = sequence_->tokens();
  while (static_cast<std::int64_t>(chain_.size()) < sequence_->n_blocks()) {
    const auto block = static_cast<std::int64_t>(chain_.size());
    chain_.push_back(block_key(chain_end(),
                               is_bounded(block) ? Provenance::kBounded : Provenance::kExact,
                               block_tokens(tokens, block)));
    share_page(block);
  }
}

// Bytes of a bounded block depend on where its replay began: equal keys do not make them equal, and
// a live state must not change under its owner.
void LiveSequence::share_page(std::int64_t block) {
  const engine::KvPagePtr own = sequence_->page(block);
  engine::KvPagePtr shared = source_.pool->share(chain_[usize(block)], own);
  if (shared == own) return;
  if (is_bounded(block)) {
    ++unshared_blocks_;
  } else {
    sequence_->replace_page(block, std::move(shared));
  }
}

// -- storing --

std::int64_t LiveSequence::n_new_blocks() const {
  return broken_ ? 0 : static_cast<std::int64_t>(chain_.size()) - stored_blocks_;
}

void LiveSequence::add_blocks(Commit& commit, Payloads& payloads) {
  if (broken_ || !sequence_) return;
  const std::span<const TokenId> tokens = sequence_->tokens();
  const std::int64_t end = std::min(static_cast<std::int64_t>(chain_.size()),
                                    stored_blocks_ + static_cast<std::int64_t>(kCommitBlocks));
  for (std::int64_t block = stored_blocks_; block < end; ++block) {
    payloads.blocks.push_back(sequence_->page(block));
    NewBlock& added = commit.blocks.emplace_back();
    added.key = chain_[usize(block)];
    added.parent = block == 0 ? root_ : chain_[usize(block - 1)];
    added.provenance = is_bounded(block) ? Provenance::kBounded : Provenance::kExact;
    added.depth = static_cast<std::uint32_t>(block);
    added.tokens = block_tokens(tokens, block);
    added.payload = payloads.blocks.back()->bytes;
  }
}

void LiveSequence::add_tail(Commit& commit, std::uint64_t sequence, Payloads& payloads) {
  const std::vector<std::byte> state = sequence_->export_tail();
  payloads.tail = encode_tail(
      {.first_bounded = first_bounded_,
       .tokens = sequence_->tokens().subspan(usize(sequence_->n_blocks() * kBlockTokens)),
       .state = state});
  NewTail& tail = commit.tail.emplace();
  tail.position = sequence_->position();
  tail.chain_key = chain_end();
  tail.sequence = sequence;
  tail.payload = payloads.tail;
}

void LiveSequence::committed(const Commit& commit) {
  stored_blocks_ += static_cast<std::int64_t>(commit.blocks.size());
  hold_stored_blocks();
  if (commit.tail) tail_position_ = commit.tail->position;
}

BlockKey LiveSequence::stored_chain_key() const {
  return stored_blocks_ == 0 ? root_ : chain_[usize(stored_blocks_ - 1)];
}

bool LiveSequence::has_unstored_state() const {
  return n_new_blocks() > 0 || (ready() && tail_position_ != sequence_->position());
}

bool LiveSequence::tail_is_due() const {
  // A tail is the windows, the logits and on average half a block.
  const engine::ModelConfig& config = model_->config();
  const std::int64_t tail_bytes = model_->info().window_bytes +
                                  std::int64_t{config.vocab_size} * 4 +
                                  sequence_->block_bytes() / 2;
  const std::int64_t tokens = sequence_->position() - std::max<std::int64_t>(tail_position_, 0);
  return tokens * sequence_->block_bytes() / kBlockTokens >= tail_bytes;
}

}  // namespace cairn::session
