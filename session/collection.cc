// How space is given back. Payloads lie under ascending numbers in tables that do not overlap, so
// what one session wrote lies together. Evicting a block removes its index entry; then whole tables
// between the numbers that live are dropped, which reads and writes nothing and takes orphans of
// crashes along. Only where that frees too little (blocks that came one by one share tables with
// others), or where the bytes must be gone for certain, tables are rewritten: a narrow range of
// numbers at a time, because a removal mark that spans many numbers would drag all of them in.
#include "session/collection.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>

#include "session/storage_key.h"

namespace cairn::session {
namespace {

constexpr int kRoundsMax = 16;
constexpr std::size_t kBlocksABatch = 256;  // one removal: below a millisecond
// Numbers that are rewritten together, and the room that this may take.
constexpr std::uint64_t kNumbersAPiece = 32;
constexpr std::int64_t kPieceBytes = 12 << 20;
constexpr std::size_t kKeysALook = 64;
// Above every key.
const std::string kLastKey(64, '\xff');

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

// The gaps between the ascending numbers `live`, below `end`.
std::vector<KeyRange> gaps(std::uint32_t kv_namespace, const std::vector<std::uint64_t>& live,
                           std::uint64_t end) {
  std::vector<KeyRange> ranges;
  std::uint64_t next = 0;
  const auto add = [&](std::uint64_t number) {
    if (number > next) {
      ranges.push_back(
          {block_number_key(kv_namespace, next), block_number_key(kv_namespace, number - 1)});
    }
    next = number + 1;
  };
  for (const std::uint64_t number : live) {
    if (number < end) add(number);
  }
  add(end);
  return ranges;
}

}  // namespace

Result<Inventory> Collection::take() {
  settled_ = store_.blocks().settled_numbers();
  dead_.clear();
  return take_inventory(store_, logged_, now_ms());
}

// -- removing --

Status Collection::remove_damaged(const Inventory& inventory) {
  WriteBatch batch;
  for (const std::string& key : inventory.graph.damaged()) batch.remove(Family::kBlockIndex, key);
  return batch.empty() ? Status() : store_.storage().write(batch, Durability::kBuffered);
}

Status Collection::remove_tail(const Inventory& inventory, std::uint32_t tail,
                               CollectReport& report) {
  for (const Inventory::Slot& slot : inventory.slots_of_tail[tail]) {
    // The session may have been opened, or have written another tail, since. What its turns left
    // behind may go all the same: each such slot is written once.
    const bool is_left = inventory.tails[tail].passed;
    if (!is_left && store_.open_sessions().contains(slot.session)) return {};
    CAIRN_RETURN_IF_ERROR(store_.drop_tail(slot.session, slot.slot));
  }
  ++report.tails_removed;
  store_.counters().change([](StoreCounters& counters) { ++counters.tails_evicted; });
  return {};
}

// In the order of the victims, so that after each batch every chain is whole.
Status Collection::remove(const Inventory& inventory, const std::vector<Victim>& victims,
                          BlockStore::Watch& watch, CollectReport& report) {
  const std::vector<StoredBlock>& blocks = inventory.graph.blocks();
  std::vector<UnneededBlock> batch;
  std::vector<std::uint32_t> positions;
  const auto write = [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<bool> gone, watch.remove(batch));
    std::int64_t n_gone = 0;
    for (std::size_t i = 0; i < gone.size(); ++i) {
      if (!gone[i]) continue;
      dead_.emplace(blocks[positions[i]].kv_namespace, blocks[positions[i]].number);
      ++n_gone;
    }
    report.blocks_removed += n_gone;
    store_.counters().change([&](StoreCounters& c) { c.blocks_evicted += n_gone; });
    batch.clear();
    positions.clear();
    stopped_ = stopped_ || !pause_(0);
    return {};
  };
  for (const Victim& victim : victims) {
    if (stopped_) return {};
    if (victim.kind == Victim::Kind::kTail) {
      CAIRN_RETURN_IF_ERROR(remove_tail(inventory, victim.position, report));
      continue;
    }
    const StoredBlock& block = blocks[victim.position];
    const BlockKey parent = block.parent == kNoBlock ? BlockKey{} : blocks[block.parent].key;
    batch.push_back({block.key, parent});
    positions.push_back(victim.position);
    if (batch.size() == kBlocksABatch) CAIRN_RETURN_IF_ERROR(write());
  }
  return write();
}

// -- giving space back --

Status Collection::drop_dead_tables(const Inventory& inventory) {
  std::map<std::uint32_t, std::vector<std::uint64_t>> live;
  for (const StoredBlock& block : inventory.graph.blocks()) {
    if (!dead_.contains({block.kv_namespace, block.number})) {
      live[block.kv_namespace].push_back(block.number);
    }
  }
  // Tables go at once and for good: what the index forgot must not come back after a power cut.
  CAIRN_RETURN_IF_ERROR(store_.sync());
  for (const auto& [kv_namespace, end] : settled_) {
    std::vector<std::uint64_t>& numbers = live[kv_namespace];
    std::ranges::sort(numbers);
    CAIRN_RETURN_IF_ERROR(
        store_.storage().drop_tables(Family::kBlocks, gaps(kv_namespace, numbers, end)));
  }
  return store_.tails().reclaim();
}

// Which of the numbers are still in some table.
Result<std::vector<Collection::Number>> Collection::find(const Numbers& numbers) {
  std::vector<Number> found;
  std::vector<Number> asked;
  std::vector<std::string> keys;
  const auto look = [&]() -> Status {
    const Status status = store_.storage().view(
        Family::kBlocks, keys, [&](std::size_t i, std::optional<std::string_view> value) {
          if (value) found.push_back(asked[i]);
          return true;
        });
    asked.clear();
    keys.clear();
    return status;
  };
  for (const Number& number : numbers) {
    asked.push_back(number);
    keys.push_back(block_number_key(number.first, number.second));
    if (keys.size() == kKeysALook) CAIRN_RETURN_IF_ERROR(look());
  }
  CAIRN_RETURN_IF_ERROR(look());
  return found;
}

Status Collection::erase(const Numbers& numbers) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Number> found, find(numbers));
  for (std::size_t i = 0; i < found.size() && !stopped_;) {
    CAIRN_RETURN_IF_ERROR(store_.space().measure());
    if (store_.space().room_to_rewrite() < kPieceBytes) return {};
    const auto [kv_namespace, first] = found[i];
    std::uint64_t last = first;
    WriteBatch batch;
    for (; i < found.size() && found[i].first == kv_namespace &&
           found[i].second < first + kNumbersAPiece;
         ++i) {
      last = found[i].second;
      batch.remove(Family::kBlocks, block_number_key(kv_namespace, last));
    }
    CAIRN_RETURN_IF_ERROR(store_.storage().write(batch, Durability::kBuffered));
    const std::int64_t before = store_.storage().bytes_written();
    CAIRN_RETURN_IF_ERROR(store_.storage().reclaim(Family::kBlocks,
                                                   block_number_key(kv_namespace, first),
                                                   block_number_key(kv_namespace, last)));
    stopped_ = !pause_(store_.storage().bytes_written() - before);
  }
  return {};
}

// Text that was removed lies in the log and in tables of records until they are rewritten.
Status Collection::erase_texts() {
  CAIRN_RETURN_IF_ERROR(store_.storage().flush());
  for (const Family family :
       {Family::kMeta, Family::kSessions, Family::kEvents, Family::kTailIndex}) {
    CAIRN_RETURN_IF_ERROR(store_.storage().reclaim(family, "", kLastKey));
  }
  return {};
}

// -- the two collections --

Status Collection::measure(CollectReport& report) {
  CAIRN_RETURN_IF_ERROR(store_.space().measure());
  report.bytes_after = store_.space().bytes_on_disk();
  return {};
}

Result<CollectReport> Collection::make_room(std::int64_t target_bytes) {
  CollectReport report;
  stopped_ = false;
  CAIRN_RETURN_IF_ERROR(measure(report));
  report.bytes_before = report.bytes_after;
  for (int round = 0; round < kRoundsMax && !stopped_; ++round) {
    BlockStore::Watch watch(store_.blocks());
    CAIRN_ASSIGN_OR_RETURN(const Inventory inventory, take());
    CAIRN_RETURN_IF_ERROR(remove_damaged(inventory));
    CAIRN_RETURN_IF_ERROR(drop_dead_tables(inventory));
    CAIRN_RETURN_IF_ERROR(measure(report));
    const std::vector<Victim> victims =
        plan_eviction(inventory.graph, inventory.tails, inventory.namespaces_in_use,
                      report.bytes_after - target_bytes);
    const std::int64_t n_removed = report.blocks_removed + report.tails_removed;
    CAIRN_RETURN_IF_ERROR(remove(inventory, victims, watch, report));
    CAIRN_RETURN_IF_ERROR(drop_dead_tables(inventory));
    CAIRN_RETURN_IF_ERROR(measure(report));
    if (report.bytes_after > target_bytes && !dead_.empty()) {
      CAIRN_RETURN_IF_ERROR(erase(dead_));
      CAIRN_RETURN_IF_ERROR(measure(report));
    }
    const bool progress = report.blocks_removed + report.tails_removed > n_removed;
    if (report.bytes_after <= target_bytes || !progress) break;
  }
  return report;
}

Result<std::int64_t> Collection::remove_branches() {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> records, store_.list());
  std::int64_t n_events = 0;
  for (const SessionRecord& record : records) {
    if (record.n_branches == 0) continue;
    const Result<std::int64_t> n_removed =
        store_.remove_branches(record.id, std::numeric_limits<std::int64_t>::max());
    if (n_removed.status().code() == StatusCode::kBusy) continue;
    if (n_removed.status().code() == StatusCode::kNotFound) continue;  // removed since
    if (!n_removed.ok()) return n_removed.status();
    n_events += *n_removed;
  }
  return n_events;
}

Result<CollectReport> Collection::remove_session(const SessionId& id) {
  CAIRN_ASSIGN_OR_RETURN(const FoundTails tails, store_.find_tails(id));
  CAIRN_RETURN_IF_ERROR(store_.remove_session(id));
  CAIRN_ASSIGN_OR_RETURN(const CollectReport report, erase_unreachable());
  // Small tails went through the log and share tables, also with those that they replaced.
  if (store_.storage().table_bytes(Family::kTails) < kPieceBytes) {
    CAIRN_RETURN_IF_ERROR(store_.storage().reclaim(Family::kTails, "", kLastKey));
    return report;
  }
  for (const TailRecord& tail : tails.tails) {
    const std::string key = tail_number_key(tail.number);
    CAIRN_RETURN_IF_ERROR(store_.storage().reclaim(Family::kTails, key, key));
  }
  return report;
}

Result<CollectReport> Collection::erase_unreachable() {
  CollectReport report;
  stopped_ = false;
  CAIRN_RETURN_IF_ERROR(measure(report));
  report.bytes_before = report.bytes_after;
  {
    BlockStore::Watch watch(store_.blocks());
    CAIRN_ASSIGN_OR_RETURN(const Inventory inventory, take());
    CAIRN_RETURN_IF_ERROR(remove(inventory, plan_unreachable(inventory.graph), watch, report));
    CAIRN_RETURN_IF_ERROR(drop_dead_tables(inventory));
  }
  CAIRN_RETURN_IF_ERROR(erase(dead_));
  CAIRN_RETURN_IF_ERROR(erase_texts());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Number> left, find(dead_));
  if (!left.empty()) {
    return Status(StatusCode::kOutOfDisk,
                  "removed, but " + std::to_string(left.size()) +
                      " blocks are still in files: the quota has no room to rewrite these",
                  "raise the quota, or remove more, then collect");
  }
  CAIRN_RETURN_IF_ERROR(measure(report));
  return report;
}

}  // namespace cairn::session
