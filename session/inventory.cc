// Whose blocks are whose: a session reaches the chain of its head (its record names it), those of
// its tails, and those of marks and rewound branches. The last two are in its log only; it is read
// where the session has any: a mark of a session that never rewound lies on the way to its head.
#include "session/inventory.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "session/stored_records.h"
#include "session/turn_tails.h"

namespace cairn::session {
namespace {

// A session that was not measured yet: a small machine.
constexpr double kPrefillUsPerToken = 1000;
// Going back to a mark is less likely than going on, to a branch that was left even less.
constexpr double kMarkWeight = 0.5, kBranchWeight = 0.25;

double weight_of(Root::Kind kind) {
  switch (kind) {
    case Root::Kind::kHead:
      return 1;
    case Root::Kind::kMark:
      return kMarkWeight;
    case Root::Kind::kBranch:
      return kBranchWeight;
  }
  return 0;
}

// A turn's tail is as likely to be gone back to as a branch.
Root::Kind kind_of(const TailRecord& tail) {
  if (tail.slot == kHeadTail) return Root::Kind::kHead;
  return is_turn_tail(tail) ? Root::Kind::kBranch : Root::Kind::kMark;
}

struct IndexedTail {
  TailRecord record;
  std::uint32_t session = 0;  // position among the records; kNoBlock: there is no such session
};

Result<std::vector<IndexedTail>> read_tails(Storage& storage,
                                            const std::map<SessionId, std::uint32_t>& positions) {
  std::vector<IndexedTail> tails;
  CAIRN_RETURN_IF_ERROR(
      storage.scan(Family::kTailIndex, "", "", [&](std::string_view key, std::string_view value) {
        Result<TailRecord> record = decode_tail_entry(key, value);
        if (!record.ok()) return true;  // found damaged when it is used
        const auto session = positions.find(record->session);
        tails.push_back(
            {std::move(*record), session == positions.end() ? kNoBlock : session->second});
        return true;
      }));
  return tails;
}

// Whether the event, of the session or inherited, was not removed.
Result<bool> has_event(Storage& storage, const SessionRecord& record, std::uint64_t sequence) {
  if (record.origin && sequence <= record.origin_sequence) return true;
  const StatusCode code = read_event(storage, record.id, sequence).status().code();
  return code != StatusCode::kNotFound;
}

// Each state once, however many slots name it.
void add_tails(const std::vector<IndexedTail>& indexed, const std::vector<std::int64_t>& ages,
               const std::vector<bool>& open, Inventory& inventory) {
  std::map<std::uint64_t, std::size_t> by_number;
  for (const IndexedTail& slot : indexed) {
    const TailRecord& record = slot.record;
    std::size_t at = inventory.tails.size();
    if (record.number > 0) at = by_number.emplace(record.number, at).first->second;
    if (at == inventory.tails.size()) {
      StoredTail& tail = inventory.tails.emplace_back();
      inventory.slots_of_tail.emplace_back();
      inventory.tail_numbers.push_back(record.number);
      tail.bytes = static_cast<std::int64_t>(record.payload_bytes);
      tail.age_ms = std::numeric_limits<std::int64_t>::max();
      tail.passed = true;
      if (record.position >= kBlockTokens) tail.block = inventory.graph.find(record.chain_key);
      tail.useless = record.position >= kBlockTokens &&
                     (tail.block == kNoBlock || !inventory.graph.blocks()[tail.block].attached);
    }
    StoredTail& tail = inventory.tails[at];
    inventory.slots_of_tail[at].push_back({record.session, record.slot});
    tail.passed = tail.passed && is_turn_tail(record);
    if (slot.session == kNoBlock) continue;
    const bool is_head = record.slot == kHeadTail;
    tail.marked = tail.marked || (!is_head && !is_turn_tail(record));
    tail.pinned = tail.pinned || (open[slot.session] && !is_turn_tail(record));
    tail.age_ms = std::min(tail.age_ms, ages[slot.session]);
  }
}

}  // namespace

Result<std::vector<Root>> LoggedRoots::of(Storage& storage, const SessionRecord& record) {
  Found& found = sessions_[record.id];
  const std::uint64_t n_removed =
      record.head_sequence - (record.origin ? record.origin_sequence : 0) - record.n_events;
  if (n_removed != found.n_removed) found = {};
  found.n_removed = n_removed;
  std::vector<std::pair<std::uint64_t, Root>> branches;  // by their last event
  const Status status =
      visit_events(storage, record.id, found.next_sequence, [&](LogEvent&& event) {
        found.next_sequence = event.sequence + 1;
        if (const auto* mark = std::get_if<MarkSet>(&event.body); mark && mark->stored_blocks > 0) {
          found.roots.push_back({mark->chain_key, Root::Kind::kMark});
        }
        if (const auto* left = std::get_if<HeadMoved>(&event.body);
            left && left->stored_blocks > 0) {
          branches.push_back({left->from, {left->chain_key, Root::Kind::kBranch}});
        }
        return true;
      });
  if (!status.ok() && status.code() != StatusCode::kCorrupt &&
      status.code() != StatusCode::kUnsupported) {
    return status;
  }
  for (const auto& [last, root] : branches) {
    CAIRN_ASSIGN_OR_RETURN(const bool is_there, has_event(storage, record, last));
    if (is_there) found.roots.push_back(root);
  }
  return found.roots;
}

Result<Inventory> take_inventory(SessionStore& store, LoggedRoots& logged, std::int64_t now_ms) {
  Inventory inventory;
  // Before the records: what a session held then, its record names now.
  const std::vector<BlockKey> held = store.blocks().held();
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> records, list_sessions(store.storage()));
  CAIRN_ASSIGN_OR_RETURN(inventory.graph, ReachGraph::load(store.storage()));

  const std::set<SessionId> open_ids = store.open_sessions();
  std::map<SessionId, std::uint32_t> positions;
  std::vector<std::int64_t> used;
  std::vector<bool> open;
  std::set<std::uint32_t> namespaces;
  for (const SessionRecord& record : records) {
    positions.emplace(record.id, static_cast<std::uint32_t>(positions.size()));
    used.push_back(record.used_ms);
    open.push_back(open_ids.contains(record.id));
    if (!record.removed) namespaces.insert(record.kv_namespace);
  }
  inventory.namespaces_in_use.assign(namespaces.begin(), namespaces.end());
  const std::vector<std::int64_t> ages = ages_of(used, now_ms);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<IndexedTail> tails,
                         read_tails(store.storage(), positions));

  std::vector<std::vector<Root>> roots(records.size());
  for (const IndexedTail& tail : tails) {
    if (tail.session == kNoBlock) continue;
    roots[tail.session].push_back({tail.record.chain_key, kind_of(tail.record)});
  }
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    const SessionRecord& record = records[i];
    const bool has_places =
        record.n_branches > 0 || std::ranges::any_of(roots[i], [](const Root& root) {
          return root.kind == Root::Kind::kMark;
        });
    if (record.stored_blocks > 0) roots[i].push_back({record.chain_key, Root::Kind::kHead});
    if (has_places) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<Root> places, logged.of(store.storage(), record));
      roots[i].insert(roots[i].end(), places.begin(), places.end());
    }
    // The likeliest first: a block counts once for a session.
    std::ranges::stable_sort(roots[i], {}, &Root::kind);
    const double us_per_token =
        record.prefill_us_per_token > 0 ? record.prefill_us_per_token : kPrefillUsPerToken;
    for (const Root& root : roots[i]) {
      inventory.graph.reach(root.key, i + 1,
                            us_per_token * likelihood_of_return(ages[i]) * weight_of(root.kind));
      if (open[i] && root.kind == Root::Kind::kHead) inventory.graph.pin(root.key);
    }
  }
  for (const BlockKey& key : held) inventory.graph.pin(key);
  add_tails(tails, ages, open, inventory);
  return inventory;
}

}  // namespace cairn::session
