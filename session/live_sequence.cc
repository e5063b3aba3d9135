#include "session/live_sequence.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/model_config.h"
#include "engine/pass_plan.h"
#include "engine/sizes.h"

namespace cairn::session {
namespace {

static_assert(kBlockTokens == engine::kBlockTokens);

using engine::usize;

std::span<const TokenId> block_tokens(std::span<const TokenId> tokens, std::int64_t block) {
  return tokens.subspan(usize(block * kBlockTokens), usize(kBlockTokens));
}

// What stands before the sequence's own bytes in a tail (FORMAT.md "Tail payload").
struct TailHeader {
  std::uint32_t version = kKvFormatVersion;
  std::uint32_t n_tokens = 0;  // after the last whole block; their ids follow the header
  std::int64_t first_bounded = -1;
};

std::vector<std::byte> encode_tail(const TailHeader& header, std::span<const TokenId> tokens,
                                   const std::vector<std::byte>& state) {
  std::vector<std::byte> out(sizeof header + tokens.size_bytes() + state.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!tokens.empty()) std::memcpy(out.data() + sizeof header, tokens.data(), tokens.size_bytes());
  std::memcpy(out.data() + sizeof header + tokens.size_bytes(), state.data(), state.size());
  return out;
}

// False if the bytes are not a tail at `position` whose open block starts with `tokens`.
bool decode_tail(std::span<const std::byte> payload, std::span<const TokenId> tokens,
                 TailHeader* header, std::span<const std::byte>* state) {
  if (payload.size() < sizeof *header) return false;
  std::memcpy(header, payload.data(), sizeof *header);
  payload = payload.subspan(sizeof *header);
  if (header->version != kKvFormatVersion || header->n_tokens != tokens.size() ||
      payload.size() < tokens.size_bytes() ||
      !std::equal(payload.begin(),
                  payload.begin() + static_cast<std::ptrdiff_t>(tokens.size_bytes()),
                  std::as_bytes(tokens).begin())) {
    return false;
  }
  *state = payload.subspan(tokens.size_bytes());
  return true;
}

bool lost(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorrupt;
}

}  // namespace

LiveSequence::LiveSequence(std::shared_ptr<const engine::LoadedModel> model, RestoreSource source)
    : model_(std::move(model)), source_(std::move(source)), root_(root_key(source_.kv_namespace)) {
  reset();
}

void LiveSequence::reset() {
  sequence_ = std::make_unique<engine::Sequence>(model_);
  broken_ = false;
  chain_.clear();
  stored_blocks_ = 0;
  first_bounded_ = -1;
  tail_position_ = -1;
}

BlockKey LiveSequence::chain_end() const { return chain_.empty() ? root_ : chain_.back(); }

BlockKey LiveSequence::next_key(std::span<const TokenId> tokens, Provenance provenance) const {
  return block_key(chain_end(), provenance, tokens);
}

Result<bool> LiveSequence::import_next_block(std::span<const TokenId> tokens, Provenance provenance,
                                             bool* corrupt) {
  const BlockKey key = next_key(tokens, provenance);
  const Result<Block> block = source_.store->get_block(key, tokens);
  if (!block.ok()) {
    if (!lost(block.status())) return block.status();
    *corrupt = *corrupt || block.status().code() == StatusCode::kCorrupt;
    return false;
  }
  const bool exact = provenance == Provenance::kExact;
  const Status imported = sequence_->import_block(tokens, block->payload(), exact);
  if (!imported.ok()) {  // sealed and found, yet of another size: of no use to anyone
    *corrupt = true;
    CAIRN_RETURN_IF_ERROR(source_.store->blocks().drop(key));
    return false;
  }
  if (!exact && first_bounded_ < 0) first_bounded_ = static_cast<std::int64_t>(chain_.size());
  chain_.push_back(key);
  stored_blocks_ = static_cast<std::int64_t>(chain_.size());
  return true;
}

Result<std::int64_t> LiveSequence::stored_chain(std::span<const TokenId> target) const {
  const std::int64_t n_blocks = static_cast<std::int64_t>(target.size()) / kBlockTokens;
  std::int64_t n_stored = 0;
  BlockKey parent = root_;
  for (const Provenance provenance : {Provenance::kExact, Provenance::kBounded}) {
    if (provenance == Provenance::kBounded && source_.policy == RestorePolicy::kExact) break;
    std::vector<BlockKey> chain;
    for (std::int64_t block = n_stored; block < n_blocks; ++block) {
      chain.push_back(block_key(chain.empty() ? parent : chain.back(), provenance,
                                block_tokens(target, block)));
    }
    CAIRN_ASSIGN_OR_RETURN(const std::size_t n_found, source_.store->stored_prefix(chain));
    if (n_found > 0) parent = chain[n_found - 1];
    n_stored += static_cast<std::int64_t>(n_found);
  }
  return n_stored;
}

// A prompt that was cut off may have left blocks far beyond the tail of the turn before. Counted in
// rows of an exact replay, so that no bounded session gives up an exact tail for little.
Result<bool> LiveSequence::blocks_beat_tail(std::span<const TokenId> target) const {
  const auto end = static_cast<std::int64_t>(target.size());
  const Result<TailRecord> tail = source_.store->find_tail(source_.session);
  if (!tail.ok() || tail->position > end) return false;  // restoring it will tell
  const auto rows_from = [&](std::int64_t n_blocks) {
    engine::PlanRequest request;
    request.live = {n_blocks * kBlockTokens, false, false};
    request.end = end;
    return end - engine::make_plan(model_->config(), request).begin;
  };
  const std::int64_t rows_after_tail = end - tail->position;
  if (rows_after_tail <= rows_from(end / kBlockTokens)) return false;  // whatever is stored
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t n_blocks, stored_chain(target));
  return rows_from(n_blocks) < rows_after_tail;
}

Result<LiveSequence::Restored> LiveSequence::restore_tail(std::span<const TokenId> target) {
  Restored restored;
  const Result<Tail> tail = source_.store->get_tail(source_.session);
  if (!tail.ok()) {
    if (!lost(tail.status())) return tail.status();
    restored.corrupt = tail.status().code() == StatusCode::kCorrupt;
    return restored;
  }
  const std::int64_t position = tail->record.position;
  const std::int64_t n_blocks = position / kBlockTokens;
  if (position > static_cast<std::int64_t>(target.size())) return restored;  // the head has moved
  const std::span<const TokenId> open_block =
      target.subspan(usize(n_blocks * kBlockTokens), usize(position % kBlockTokens));
  TailHeader header;
  std::span<const std::byte> state;
  if (!decode_tail(tail->payload(), open_block, &header, &state)) return restored;
  if (source_.policy == RestorePolicy::kExact && header.first_bounded >= 0) return restored;
  for (std::int64_t block = 0; block < n_blocks; ++block) {
    const bool bounded = header.first_bounded >= 0 && block >= header.first_bounded;
    CAIRN_ASSIGN_OR_RETURN(
        const bool found,
        import_next_block(block_tokens(target, block),
                          bounded ? Provenance::kBounded : Provenance::kExact, &restored.corrupt));
    if (!found) return restored;
  }
  if (chain_end() != tail->record.chain_key) return restored;  // of another prefix
  const Status imported = sequence_->import_tail(open_block, state);
  if (!imported.ok()) {
    restored.corrupt = true;
    CAIRN_RETURN_IF_ERROR(source_.store->drop_tail(source_.session));
    return restored;
  }
  first_bounded_ = header.first_bounded;
  tail_position_ = position;
  restored.tokens = position;
  return restored;
}

Result<LiveSequence::Restored> LiveSequence::restore_blocks(std::span<const TokenId> target) {
  Restored restored;
  const std::int64_t n_blocks = static_cast<std::int64_t>(target.size()) / kBlockTokens;
  for (std::int64_t block = 0; block < n_blocks; ++block) {
    const std::span<const TokenId> tokens = block_tokens(target, block);
    bool found = false;
    if (first_bounded_ < 0) {
      CAIRN_ASSIGN_OR_RETURN(found,
                             import_next_block(tokens, Provenance::kExact, &restored.corrupt));
    }
    if (!found && source_.policy == RestorePolicy::kBounded) {
      CAIRN_ASSIGN_OR_RETURN(found,
                             import_next_block(tokens, Provenance::kBounded, &restored.corrupt));
    }
    if (!found) break;
  }
  restored.tokens = sequence_->position();
  return restored;
}

Result<ReuseReport> LiveSequence::start_restore(std::span<const TokenId> target) {
  Result<ReuseReport> report = plan_restore(target);
  if (!report.ok()) reset();  // an import may have stopped in the middle
  return report;
}

Result<ReuseReport> LiveSequence::plan_restore(std::span<const TokenId> target) {
  ReuseReport report;
  report.prompt_tokens = static_cast<std::int64_t>(target.size());
  sequence_->abandon_prefill();
  const std::span<const TokenId> live = sequence_->tokens();
  const bool continues = !broken_ && live.size() <= target.size() &&
                         std::equal(live.begin(), live.end(), target.begin());
  if (continues && !live.empty()) {
    report.from_memory = sequence_->position();
  } else {
    reset();
    CAIRN_ASSIGN_OR_RETURN(const bool skip_tail, blocks_beat_tail(target));
    Restored restored;
    if (!skip_tail) {
      CAIRN_ASSIGN_OR_RETURN(restored, restore_tail(target));
    }
    report.tail_restored = restored.tokens > 0;
    bool corrupt = restored.corrupt;
    if (restored.tokens == 0) {
      reset();
      CAIRN_ASSIGN_OR_RETURN(restored, restore_blocks(target));
      corrupt = corrupt || restored.corrupt;
    }
    report.from_disk = restored.tokens;
    if (corrupt) report.cause = MissCause::kCorrupt;
  }
  const std::int64_t reused = sequence_->position();
  report.prefilled = report.prompt_tokens - reused;
  engine::PrefillOptions options;
  options.bounded_restore = source_.policy == RestorePolicy::kBounded;
  CAIRN_RETURN_IF_ERROR(sequence_->start_prefill(target.subspan(usize(reused)), options));
  report.replayed = sequence_->prefilling() ? sequence_->replayed() : 0;
  const bool exact_plan = !sequence_->prefilling() || sequence_->plan_is_exact();
  if (!exact_plan && first_bounded_ < 0) {
    first_bounded_ = static_cast<std::int64_t>(chain_.size());
  }
  // Not the sequence's own word: a tail may hold a bounded state without a whole block of it.
  report.exact = first_bounded_ < 0;
  return report;
}

void LiveSequence::extend_chain() {
  const std::span<const TokenId> tokens = sequence_->tokens();
  while (static_cast<std::int64_t>(chain_.size()) < sequence_->n_blocks()) {
    const auto block = static_cast<std::int64_t>(chain_.size());
    const bool bounded = first_bounded_ >= 0 && block >= first_bounded_;
    chain_.push_back(
        next_key(block_tokens(tokens, block), bounded ? Provenance::kBounded : Provenance::kExact));
  }
}

void LiveSequence::add_blocks(Commit& commit, Payloads& payloads) {
  if (broken_) return;
  extend_chain();
  const std::span<const TokenId> tokens = sequence_->tokens();
  payloads.blocks.reserve(usize(sequence_->n_blocks() - stored_blocks_));
  for (std::int64_t block = stored_blocks_; block < sequence_->n_blocks(); ++block) {
    payloads.blocks.push_back(sequence_->export_block(block));
    NewBlock& added = commit.blocks.emplace_back();
    added.key = chain_[usize(block)];
    added.parent = block == 0 ? root_ : chain_[usize(block - 1)];
    added.provenance =
        first_bounded_ >= 0 && block >= first_bounded_ ? Provenance::kBounded : Provenance::kExact;
    added.depth = static_cast<std::uint32_t>(block);
    added.tokens = block_tokens(tokens, block);
    added.payload = payloads.blocks.back();
  }
}

void LiveSequence::add_tail(Commit& commit, std::uint64_t sequence, Payloads& payloads) {
  extend_chain();
  const std::span<const TokenId> open_block =
      sequence_->tokens().subspan(usize(sequence_->n_blocks() * kBlockTokens));
  TailHeader header;
  header.n_tokens = static_cast<std::uint32_t>(open_block.size());
  header.first_bounded = first_bounded_;
  payloads.tail = encode_tail(header, open_block, sequence_->export_tail());
  NewTail& tail = commit.tail.emplace();
  tail.position = sequence_->position();
  tail.chain_key = chain_end();
  tail.sequence = sequence;
  tail.payload = payloads.tail;
}

void LiveSequence::committed(const Commit& commit) {
  stored_blocks_ += static_cast<std::int64_t>(commit.blocks.size());
  if (commit.tail) tail_position_ = commit.tail->position;
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
