// The index (session, slot) -> TailRecord is small; the payload lies under the record's number. How
// often a number is named is counted in memory only, from the index at open, so it cannot drift.
//
// Changes of several sessions may be under way at once. A number counts as named by the slot that a
// change took it from until that change is in the storage; only the last to let go removes the
// bytes, in its own batch, so whatever instant the process dies at, no slot names bytes that are
// gone. Where two let go at the same time neither knows to be the last: the bytes are then removed
// by the next change.
#include "session/tail_store.h"

#include <algorithm>
#include <new>
#include <utility>

#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

// Numbers made durable at a time. A crash loses at most these, of 2^64.
constexpr std::uint64_t kReservedAtOnce = 4096;
// Removed bytes after which the disk space is given back.
constexpr std::uint64_t kRemovedBytesMax = 64 << 20;

Status about(const TailSlot& slot, const Status& status) {
  return with_subject("tail of " + subject_of(slot.session), status);
}

// Adds to a list of what can be given back later. Without memory that waits for a collection.
template <class Item>
void note(std::vector<Item>& list, const Item& item) noexcept {
  try {
    list.push_back(item);
  } catch (const std::bad_alloc&) {
  }
}

// Whether the payload's descriptor is the one that the index expects. Session and slot are those it
// was written for; others may share it.
bool describes(TailRecord descriptor, const TailRecord& indexed) {
  descriptor.session = indexed.session;
  descriptor.slot = indexed.slot;
  return descriptor == indexed;
}

}  // namespace

// -- opening --

Status TailStore::load() {
  const std::lock_guard lock(mutex_);
  const auto count = [this](std::string_view key, std::string_view value) {
    // A damaged entry is reported when its tail is looked for.
    const Result<TailRecord> record = decode_tail_entry(key, value);
    if (!record.ok()) return true;
    slots_[{record->session, record->slot}] = {record->number, record->payload_bytes};
    if (record->number != 0) ++uses_[record->number];
    next_ = std::max(next_, record->number + 1);
    return true;
  };
  CAIRN_RETURN_IF_ERROR(storage_.scan(Family::kTailIndex, "", "", count));
  const Result<std::string> content =
      get_record(storage_, Family::kMeta, std::string(kTailNumbersKey));
  if (content.ok()) {
    CAIRN_ASSIGN_OR_RETURN(const std::uint64_t reserved, decode_number(*content));
    next_ = std::max(next_, reserved);
  } else if (content.status().code() != StatusCode::kNotFound) {
    return content.status();
  }
  reserved_ = next_;
  return {};
}

Result<std::uint64_t> TailStore::take_number() {
  const std::lock_guard lock(mutex_);
  if (next_ == reserved_) {
    // Durable before the tails, which go past the log.
    WriteBatch batch;
    CAIRN_RETURN_IF_ERROR(put_record(Family::kMeta, std::string(kTailNumbersKey),
                                     encode_number(reserved_ + kReservedAtOnce), batch));
    CAIRN_RETURN_IF_ERROR(storage_.write(batch, Durability::kSynced));
    reserved_ += kReservedAtOnce;
  }
  ++uses_[next_];
  return next_++;
}

// -- changing --

TailStore::Changes::~Changes() {
  if (written_) return;
  const std::lock_guard lock(store_.mutex_);
  for (auto it = renamed_.rbegin(); it != renamed_.rend(); ++it) {
    const auto slot = store_.slots_.find(it->slot);
    if (slot != store_.slots_.end()) slot->second = it->before;
    store_.release(it->after);
  }
  for (const Named& tail : buried_) {
    if (!store_.uses_.contains(tail.number)) note(store_.dead_, tail);
  }
}

Status TailStore::Changes::put(const SessionId& session, const NewTail& tail) {
  CAIRN_ASSIGN_OR_RETURN(const std::uint64_t number, store_.take_number());
  const TailRecord record = {.session = session,
                             .slot = tail.slot,
                             .position = tail.position,
                             .chain_key = tail.chain_key,
                             .sequence = tail.sequence,
                             .payload_bytes = tail.payload.size(),
                             .number = number};
  const std::string key = tail_number_key(number);
  batch_.put_bulk(Family::kTails, key,
                  seal_payload(Family::kTails, key, encode(record), tail.payload), tail.payload);
  CAIRN_RETURN_IF_ERROR(name_held(record));
  put_.push_back(record);
  return {};
}

Result<bool> TailStore::Changes::share(const TailSlot& from, const TailSlot& to) {
  const auto is_from = [&](const TailRecord& put) {
    return TailSlot{put.session, put.slot} == from;
  };
  const auto put = std::ranges::find_if(put_, is_from);
  Result<TailRecord> record = put != put_.end() ? Result<TailRecord>(*put) : store_.find(from);
  if (record.status().code() == StatusCode::kNotFound) return false;
  if (record.status().code() == StatusCode::kCorrupt) return false;
  if (!record.ok()) return record.status();
  record->session = to.session;
  record->slot = to.slot;
  {
    // What the slot named when it was read may have been replaced since.
    const std::lock_guard lock(store_.mutex_);
    const auto found = store_.slots_.find(from);
    if (found == store_.slots_.end() || found->second.number != record->number) return false;
    ++store_.uses_[record->number];
  }
  CAIRN_RETURN_IF_ERROR(name_held(*record));
  return true;
}

// Lets the slot name a number that the caller holds a use of, which ends here.
Status TailStore::Changes::name_held(const TailRecord& record) {
  const Named tail = {record.number, record.payload_bytes};
  const Status added =
      put_record(Family::kTailIndex, tail_key(record.session, record.slot), encode(record), batch_);
  if (added.ok()) set({record.session, record.slot}, tail);
  const std::lock_guard lock(store_.mutex_);
  store_.release(tail);
  return added;
}

void TailStore::Changes::remove(const TailSlot& slot) {
  batch_.remove(Family::kTailIndex, tail_key(slot.session, slot.slot));
  set(slot, {});
}

Status TailStore::Changes::remove_all(const SessionId& session) {
  std::vector<std::uint64_t> slots;
  const std::string prefix = session_key(session);
  CAIRN_RETURN_IF_ERROR(store_.storage_.scan(Family::kTailIndex, prefix, prefix,
                                             [&](std::string_view key, std::string_view) {
                                               if (const auto slot = parse_event_sequence(key))
                                                 slots.push_back(*slot);
                                               return true;
                                             }));
  for (const std::uint64_t slot : slots) remove({session, slot});
  return {};
}

void TailStore::Changes::set(const TailSlot& slot, const Named& after) {
  const std::lock_guard lock(store_.mutex_);
  Named& named = store_.slots_.try_emplace(slot).first->second;
  const Named before = named;
  renamed_.push_back({slot, before, after});  // from here on it can be undone without memory
  named = after;
  if (after.number != 0) ++store_.uses_[after.number];
  const auto taken_here = std::ranges::count_if(
      renamed_, [&](const Renamed& renamed) { return renamed.before.number == before.number; });
  if (before.number != 0 && store_.uses_[before.number] == taken_here) bury(before);
  for (const Named& dead : store_.dead_) bury(dead);
  store_.dead_.clear();
}

void TailStore::Changes::bury(const Named& tail) {
  batch_.remove(Family::kTails, tail_number_key(tail.number));
  buried_.push_back(tail);
}

void TailStore::Changes::written() {
  written_ = true;
  {
    const std::lock_guard lock(store_.mutex_);
    for (const Renamed& renamed : renamed_) {
      store_.release(renamed.before);
      const auto slot = store_.slots_.find(renamed.slot);
      if (slot != store_.slots_.end() && slot->second.number == 0) store_.slots_.erase(slot);
    }
    for (const Named& tail : buried_) store_.buried(tail);
    if (store_.removed_bytes_ <= kRemovedBytesMax) return;
    if (store_.many_removed_) return store_.many_removed_();
  }
  // An error of the storage is latched there and met by the next write.
  try {
    (void)store_.reclaim();
  } catch (const std::bad_alloc&) {  // the batch is written all the same; the next one tries again
  }
}

void TailStore::release(const Named& tail) noexcept {
  if (tail.number == 0) return;
  const auto uses = uses_.find(tail.number);
  if (--uses->second > 0) return;
  uses_.erase(uses);
  note(dead_, tail);
}

void TailStore::buried(const Named& tail) noexcept {
  std::erase_if(dead_, [&](const Named& dead) { return dead.number == tail.number; });
  note(removed_, tail.number);
  removed_bytes_ += tail.payload_bytes;
}

// -- reading --

Result<TailRecord> TailStore::find(const TailSlot& slot) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, get_record(storage_, Family::kTailIndex,
                                                               tail_key(slot.session, slot.slot)));
  return decode_tail_record(content);
}

Result<FoundTails> TailStore::find_all(const SessionId& session) {
  FoundTails found;
  std::vector<std::uint64_t> damaged;
  const std::string prefix = session_key(session);
  CAIRN_RETURN_IF_ERROR(storage_.scan(
      Family::kTailIndex, prefix, prefix, [&](std::string_view key, std::string_view value) {
        Result<TailRecord> record = decode_tail_entry(key, value);
        if (record.ok()) {
          found.tails.push_back(std::move(*record));
        } else if (const auto slot = parse_event_sequence(key)) {  // keys of one form
          damaged.push_back(*slot);
        }
        return true;
      }));
  found.n_corrupt = static_cast<std::int64_t>(damaged.size());
  for (const std::uint64_t slot : damaged) (void)drop({session, slot});
  return found;
}

Result<Tail> TailStore::read(const TailSlot& slot) {
  Tail tail;
  CAIRN_ASSIGN_OR_RETURN(tail.record, find(slot));
  const std::string key = tail_number_key(tail.record.number);
  Result<std::string> value = storage_.get(Family::kTails, key);
  if (value.status().code() == StatusCode::kNotFound) return corrupt("indexed but not stored");
  if (!value.ok()) return value.status();

  tail.value = std::move(*value);
  CAIRN_ASSIGN_OR_RETURN(const PayloadView view, unseal_payload(Family::kTails, key, tail.value));
  tail.payload_at = tail.value.size() - view.payload.size();
  CAIRN_ASSIGN_OR_RETURN(const TailRecord descriptor, decode_tail_record(view.descriptor));
  if (!describes(descriptor, tail.record)) return corrupt("index and tail disagree");
  if (tail.record.payload_bytes != view.payload.size()) return corrupt("payload of wrong size");
  return tail;
}

Result<Tail> TailStore::get(const TailSlot& slot) {
  Result<Tail> tail = read(slot);
  if (tail.ok()) return tail;
  // Dropping may fail on a store that cannot be written; the tail is then reported again.
  if (tail.status().code() == StatusCode::kCorrupt) {
    counters_.change([](StoreCounters& counters) { ++counters.tails_corrupt; });
    (void)drop(slot);
  }
  return about(slot, tail.status());
}

Status TailStore::drop(const TailSlot& slot) {
  WriteBatch batch;
  Changes changes(*this, batch);
  changes.remove(slot);
  CAIRN_RETURN_IF_ERROR(storage_.write(batch, Durability::kBuffered));
  changes.written();
  return {};
}

Status TailStore::visit(const std::function<bool(const TailRecord&)>& visit) {
  return storage_.scan(Family::kTailIndex, "", "",
                       [&](std::string_view key, std::string_view value) {
                         const Result<TailRecord> record = decode_tail_entry(key, value);
                         return !record.ok() || visit(*record);
                       });
}

// -- disk space --

void TailStore::on_many_removed(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  many_removed_ = std::move(call);
}

Status TailStore::reclaim_if_many() {
  {
    const std::lock_guard lock(mutex_);
    if (removed_bytes_ <= kRemovedBytesMax) return {};
  }
  return reclaim();
}

// Runs of removed numbers without one in use between them are tables of their own, or parts of
// small ones that compaction rewrites.
Status TailStore::reclaim() {
  std::vector<KeyRange> ranges;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::sort(removed_);
    auto after = uses_.end();
    for (const std::uint64_t number : removed_) {
      const auto next_used = uses_.lower_bound(number);
      if (ranges.empty() || next_used != after) ranges.push_back({tail_number_key(number), ""});
      ranges.back().last = tail_number_key(number);
      after = next_used;
    }
    removed_.clear();
    removed_bytes_ = 0;
  }
  if (ranges.empty()) return {};
  // Tables go at once and for good: no slot may name them again after a power cut.
  CAIRN_RETURN_IF_ERROR(storage_.write(WriteBatch(), Durability::kSynced));
  return storage_.drop_tables(Family::kTails, ranges);
}

}  // namespace cairn::session
