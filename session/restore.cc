// The choice is made from indexes and memory alone, but for the tail, which is read first: only its
// head says which blocks it stands on. Then blocks come from the reader's thread, batch by batch,
// while the strand puts the one before into the sequence. Every choice that fails leaves at least
// one refused block or tail behind, so choosing ends.
#include "session/restore.h"

#include <algorithm>

#include "engine/pass_plan.h"
#include "engine/sizes.h"
#include "session/tail_payload.h"

namespace cairn::session {
namespace {

using engine::usize;

bool lost(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorrupt;
}

}  // namespace

Restore::Restore(std::shared_ptr<const engine::LoadedModel> model, const RestoreSource& source,
                 std::vector<TokenId> target)
    : model_(std::move(model)),
      source_(source),
      target_(std::move(target)),
      root_(root_key(source.kv_namespace)),
      hold_(source.store->blocks()) {}

Result<bool> Restore::step() {
  if (!candidate_) {
    CAIRN_ASSIGN_OR_RETURN(Candidate candidate, choose());
    begin(std::move(candidate));
  }
  CAIRN_ASSIGN_OR_RETURN(const bool imported, import_blocks());
  if (!imported || !import_tail()) return false;
  reader_.reset();
  for (const ChainBlock& block : candidate_->chain) {
    restored_.chain.push_back(block.key);
    if (block.from_memory) restored_.from_memory += kBlockTokens;
  }
  const auto not_stored = std::ranges::find_if(
      candidate_->chain, [](const ChainBlock& block) { return !block.record; });
  restored_.stored_blocks = not_stored - candidate_->chain.begin();
  restored_.first_bounded = candidate_->first_bounded;
  return true;
}

// -- choosing --

Result<Restore::Candidate> Restore::choose() {
  const auto end = static_cast<std::int64_t>(target_.size());
  CAIRN_ASSIGN_OR_RETURN(const Chain exact,
                         find_chain(root_, Provenance::kExact, 0, end / kBlockTokens));
  CAIRN_ASSIGN_OR_RETURN(Candidate blocks, find_blocks(exact));
  restored_.n_blocks_found = static_cast<std::int64_t>(blocks.chain.size());
  // Counted in rows of an exact replay, so that no bounded session gives up an exact tail for
  // little.
  const std::int64_t rows_after_blocks = rows_after(restored_.n_blocks_found);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TailRecord> tails, find_tails());
  for (const TailRecord& record : tails) {
    if (end - record.position > rows_after_blocks) break;
    Candidate candidate;
    CAIRN_ASSIGN_OR_RETURN(const bool fits, open_tail(record, exact, candidate));
    if (fits) return candidate;
    refused_tails_.insert({record.session, record.slot});
  }
  return blocks;
}

Result<RestorePlan> Restore::plan() {
  CAIRN_ASSIGN_OR_RETURN(const Candidate candidate, choose());
  const auto n_blocks = static_cast<std::int64_t>(candidate.chain.size());
  const auto end = static_cast<std::int64_t>(target_.size());
  RestorePlan plan;
  plan.n_blocks_found = restored_.n_blocks_found;
  ReuseReport& report = plan.report;
  report.prompt_tokens = end;
  report.tail_restored = candidate.tail.has_value();
  const std::int64_t reused =
      candidate.tail ? candidate.tail->record.position : n_blocks * kBlockTokens;
  report.bytes_read = restored_.n_bytes_read;
  for (const ChainBlock& block : candidate.chain) {
    if (block.from_memory) report.from_memory += kBlockTokens;
    if (!block.page) report.bytes_read += static_cast<std::int64_t>(block.record->payload_bytes);
  }
  report.from_disk = reused - report.from_memory;
  report.prefilled = end - reused;
  if (!candidate.tail || report.prefilled > 0) {
    engine::PlanRequest request;
    request.live = {reused, report.tail_restored, report.tail_restored};
    request.end = end;
    request.bounded_restore = source_.policy == RestorePolicy::kBounded;
    report.replayed = reused - engine::make_plan(model_->config(), request).begin;
  }
  report.exact = candidate.first_bounded < 0;
  const ModelInfo& info = model_->info();
  plan.memory_bytes =
      info.window_bytes + (end + kBlockTokens - 1) / kBlockTokens * info.global_kv_bytes_per_block;
  return plan;
}

Result<Restore::Chain> Restore::find_chain(const BlockKey& parent, Provenance provenance,
                                           std::int64_t first, std::int64_t end) {
  std::vector<BlockKey> keys;
  for (std::int64_t block = first; block < end; ++block) {
    keys.push_back(block_key(keys.empty() ? parent : keys.back(), provenance, block_tokens(block)));
  }
  CAIRN_ASSIGN_OR_RETURN(FoundBlocks found, source_.store->blocks().find_all(keys));
  restored_.n_blocks_corrupt += found.n_corrupt;
  Chain chain;
  for (std::size_t i = 0; i < keys.size() && !refused_blocks_.contains(keys[i]); ++i) {
    ChainBlock block = {keys[i], provenance, std::move(found.records[i]), nullptr, false};
    if (const auto read = read_.find(block.key); read != read_.end()) {
      block.page = read->second;
    } else {
      block.page = source_.pool->find(block.key);
      block.from_memory = block.page != nullptr;
    }
    if (!block.page && !block.record) break;
    chain.push_back(std::move(block));
  }
  return chain;
}

Result<Restore::Candidate> Restore::find_blocks(const Chain& exact) {
  Candidate candidate;
  candidate.chain = exact;
  const auto n_exact = static_cast<std::int64_t>(exact.size());
  const auto n_blocks = static_cast<std::int64_t>(target_.size()) / kBlockTokens;
  if (source_.policy == RestorePolicy::kExact || n_exact == n_blocks) return candidate;
  CAIRN_ASSIGN_OR_RETURN(const Chain rest, find_chain(key_before(exact, n_exact),
                                                      Provenance::kBounded, n_exact, n_blocks));
  if (!rest.empty()) candidate.first_bounded = n_exact;
  candidate.chain.insert(candidate.chain.end(), rest.begin(), rest.end());
  return candidate;
}

// Best first. Whose tail it is does not matter: the keys of its blocks and its tokens say what it
// is.
Result<std::vector<TailRecord>> Restore::find_tails() {
  std::vector<TailRecord> tails;
  std::vector<SessionId> line;  // a damaged store may say that two sessions began with each other
  for (SessionId session = source_.session; std::ranges::find(line, session) == line.end();) {
    line.push_back(session);
    CAIRN_ASSIGN_OR_RETURN(FoundTails found, source_.store->find_tails(session));
    restored_.n_tails_corrupt += found.n_corrupt;
    for (TailRecord& tail : found.tails) {
      if (tail.position > static_cast<std::int64_t>(target_.size())) continue;
      if (refused_tails_.contains({tail.session, tail.slot})) continue;
      tails.push_back(std::move(tail));
    }
    const Result<SessionRecord> record = source_.store->load_session(session);
    if (!record.ok() || !record->origin) break;  // what cannot be read is of no help
    session = *record->origin;
  }
  std::ranges::stable_sort(tails, std::ranges::greater(), &TailRecord::position);
  return tails;
}

Result<bool> Restore::open_tail(const TailRecord& record, const Chain& exact,
                                Candidate& candidate) {
  const std::int64_t n_blocks = record.position / kBlockTokens;
  const auto n_exact = static_cast<std::int64_t>(exact.size());
  if (source_.policy == RestorePolicy::kExact &&
      (n_blocks > n_exact || key_before(exact, n_blocks) != record.chain_key)) {
    return false;
  }
  Result<Tail> tail = source_.store->get_tail(record.session, record.slot);
  if (!tail.ok()) {
    if (!lost(tail.status())) return tail.status();
    if (tail.status().code() == StatusCode::kCorrupt) ++restored_.n_tails_corrupt;
    return false;
  }
  restored_.n_bytes_read += static_cast<std::int64_t>(tail->value.size());
  const auto payload = decode_tail(tail->payload(), open_tokens(record));
  if (!payload || tail->record != record) return false;  // the head has moved
  if (source_.policy == RestorePolicy::kExact && payload->first_bounded >= 0) return false;

  candidate.first_bounded = payload->first_bounded;
  const std::int64_t n_exact_needed =
      payload->first_bounded < 0 ? n_blocks : std::min(payload->first_bounded, n_blocks);
  if (n_exact_needed > n_exact) return false;
  candidate.chain.assign(exact.begin(), exact.begin() + n_exact_needed);
  if (n_exact_needed < n_blocks) {
    CAIRN_ASSIGN_OR_RETURN(const Chain rest,
                           find_chain(key_before(exact, n_exact_needed), Provenance::kBounded,
                                      n_exact_needed, n_blocks));
    candidate.chain.insert(candidate.chain.end(), rest.begin(), rest.end());
  }
  if (static_cast<std::int64_t>(candidate.chain.size()) != n_blocks) return false;
  candidate.tail = std::move(*tail);
  return key_before(candidate.chain, n_blocks) == record.chain_key;
}

std::int64_t Restore::rows_after(std::int64_t n_blocks) const {
  engine::PlanRequest request;
  request.live = {n_blocks * kBlockTokens, false, false};
  request.end = static_cast<std::int64_t>(target_.size());
  return request.end - engine::make_plan(model_->config(), request).begin;
}

std::span<const TokenId> Restore::block_tokens(std::int64_t block) const {
  return std::span(target_).subspan(usize(block * kBlockTokens), usize(kBlockTokens));
}

std::span<const TokenId> Restore::open_tokens(const TailRecord& tail) const {
  const std::int64_t n_open = tail.position % kBlockTokens;
  return std::span(target_).subspan(usize(tail.position - n_open), usize(n_open));
}

BlockKey Restore::key_before(const Chain& chain, std::int64_t block) const {
  return block == 0 ? root_ : chain[usize(block - 1)].key;
}

// -- importing --

void Restore::begin(Candidate candidate) {
  reader_.reset();
  batch_ = {};
  batch_at_ = 0;
  restored_.sequence = std::make_unique<engine::Sequence>(model_);
  hold_.set(candidate.chain.empty() ? std::nullopt : std::optional(candidate.chain.back().key));
  std::vector<FoundBlock> to_read;
  for (std::size_t i = 0; i < candidate.chain.size(); ++i) {
    const ChainBlock& block = candidate.chain[i];
    if (!block.page) {
      to_read.push_back({block.key, block_tokens(static_cast<std::int64_t>(i)), *block.record});
    }
  }
  if (!to_read.empty()) {
    reader_ = std::make_unique<BlockReader>(source_.store->blocks(), std::move(to_read));
  }
  candidate_ = std::move(candidate);
}

// True when all are in the sequence, false when there is more to do, which may be to choose again.
Result<bool> Restore::import_blocks() {
  Chain& chain = candidate_->chain;
  for (bool has_read = false;;) {
    const auto at = usize(restored_.sequence->n_blocks());
    if (at == chain.size()) return true;
    ChainBlock& block = chain[at];
    if (!block.page && batch_at_ < batch_.pages.size()) {
      block.page = std::move(batch_.pages[batch_at_++]);
      read_.emplace(block.key, block.page);
    }
    if (block.page) {
      const Status imported = import_page(static_cast<std::int64_t>(at), block);
      if (!imported.ok()) return give_up(block.key, imported);
    } else if (!batch_.status.ok()) {
      return give_up(block.key, batch_.status);
    } else if (has_read) {
      return false;
    } else {
      batch_ = reader_->next();
      batch_at_ = 0;
      has_read = true;
      restored_.n_bytes_read += batch_.n_bytes_read;
    }
  }
}

// A block may check and yet be of another size: of no use to anyone.
Status Restore::import_page(std::int64_t number, const ChainBlock& block) {
  engine::Sequence& sequence = *restored_.sequence;
  const auto n_bytes = static_cast<std::int64_t>(block.page->bytes.size());
  if (n_bytes != sequence.block_bytes()) {
    (void)source_.store->blocks().drop(block.key);
    return corrupt("a KV block of " + std::to_string(n_bytes) + " bytes, this model's have " +
                   std::to_string(sequence.block_bytes()));
  }
  return sequence.import_page(block_tokens(number), block.page,
                              block.provenance == Provenance::kExact);
}

Result<bool> Restore::give_up(const BlockKey& block, const Status& why) {
  if (!lost(why)) return why;
  if (why.code() == StatusCode::kCorrupt) ++restored_.n_blocks_corrupt;
  refused_blocks_.insert(block);
  candidate_.reset();
  return false;
}

bool Restore::import_tail() {
  if (!candidate_->tail) return true;
  const TailRecord& record = candidate_->tail->record;
  const std::span<const TokenId> tokens = open_tokens(record);
  const auto payload = decode_tail(candidate_->tail->payload(), tokens);
  if (payload && restored_.sequence->import_tail(tokens, payload->state).ok()) {
    restored_.tail_position = record.position;
    return true;
  }
  ++restored_.n_tails_corrupt;
  refused_tails_.insert({record.session, record.slot});
  (void)source_.store->drop_tail(record.session, record.slot);
  candidate_.reset();
  return false;
}

}  // namespace cairn::session
