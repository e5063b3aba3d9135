// SessionStore's part about what goes: sessions, and branches that rewinds left. Text that a fork
// shows stays in its origin's log, under a record that nobody finds, until the fork is gone too.
#include <algorithm>
#include <utility>

#include "session/log_tree.h"
#include "session/sealed_value.h"
#include "session/session_store.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

// Adds the removal of every key that begins with `prefix`.
Status remove_all(Storage& storage, Family family, const std::string& prefix, WriteBatch& batch) {
  return storage.scan(family, prefix, prefix, [&](std::string_view key, std::string_view) {
    batch.remove(family, std::string(key));
    return true;
  });
}

// Where forks of the session begin, ascending.
std::vector<std::uint64_t> fork_points(const std::vector<SessionRecord>& sessions,
                                       const SessionId& origin) {
  std::vector<std::uint64_t> points;
  for (const SessionRecord& session : sessions) {
    if (session.origin == origin) points.push_back(session.origin_sequence);
  }
  std::ranges::sort(points);
  return points;
}

// Adds the removal of the events that lead to none of the forks. Returns the newest event of the
// session's origins that leads to one, 0 where none does.
Result<std::uint64_t> remove_unshared(Storage& storage, const SessionRecord& record,
                                      const std::vector<std::uint64_t>& points, WriteBatch& batch) {
  const SessionId& id = record.id;
  Result<LogTree> tree = LogTree::read(storage, record);
  if (tree.status().code() == StatusCode::kCorrupt) {
    // What cannot be read is not judged; what lies behind every fork is of no use to any.
    const std::string prefix = session_key(id);
    CAIRN_RETURN_IF_ERROR(storage.scan(Family::kEvents, prefix, event_key(id, points.back() + 1),
                                       [&](std::string_view key, std::string_view) {
                                         batch.remove(Family::kEvents, std::string(key));
                                         return true;
                                       }));
    return std::min(record.origin_sequence, points.back());
  }
  if (!tree.ok()) return tree.status();
  for (const std::uint64_t point : points) tree->keep(point);
  for (const std::uint64_t event : tree->unneeded()) {
    batch.remove(Family::kEvents, event_key(id, event));
  }
  return tree->needed_of_origins();
}

}  // namespace

Status SessionStore::remove_session(const SessionId& id) {
  CAIRN_ASSIGN_OR_RETURN(const SessionLease nobody_else, lease(id));
  const std::lock_guard lock(names_mutex_);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> sessions, list_sessions(*storage_));
  const SessionRecord record = nobody_else.session()->record;
  WriteBatch batch;
  batch.remove(Family::kMeta, name_key(record.name));
  TailStore::Changes tails(tails_, batch);
  CAIRN_RETURN_IF_ERROR(add_removal(record, sessions, batch, tails));
  CAIRN_RETURN_IF_ERROR(storage_->write(batch, Durability::kSynced));
  tails.written();
  return {};
}

Status SessionStore::add_removal(SessionRecord record, std::vector<SessionRecord> sessions,
                                 WriteBatch& batch, TailStore::Changes& tails) {
  const auto is = [](const SessionId& id) {
    return [&id](const SessionRecord& session) { return session.id == id; };
  };
  while (true) {
    const std::string key = session_key(record.id);
    CAIRN_RETURN_IF_ERROR(tails.remove_all(record.id));
    const std::vector<std::uint64_t> points = fork_points(sessions, record.id);
    if (points.empty()) {
      batch.remove(Family::kSessions, key);
      CAIRN_RETURN_IF_ERROR(remove_all(*storage_, Family::kEvents, key, batch));
      std::erase_if(sessions, is(record.id));
    } else {
      CAIRN_ASSIGN_OR_RETURN(record.origin_sequence,
                             remove_unshared(*storage_, record, points, batch));
      record.removed = true;
      record.name.clear();
      record.labels.clear();
      record.stored_blocks = 0;
      record.n_branches = 0;
      CAIRN_RETURN_IF_ERROR(put_record(Family::kSessions, key, encode(record), batch));
      *std::ranges::find_if(sessions, is(record.id)) = record;
    }
    // An origin that was kept for this session's sake may go as well, or more of its events.
    if (!record.origin) return {};
    const auto origin = std::ranges::find_if(sessions, is(*record.origin));
    if (origin == sessions.end() || !origin->removed) return {};
    record = *origin;
  }
}

Result<std::int64_t> SessionStore::remove_branches(const SessionId& id,
                                                   std::int64_t left_before_ms) {
  CAIRN_ASSIGN_OR_RETURN(const SessionRecord stored, load_session(id));
  if (stored.n_branches == 0) return std::int64_t{0};
  std::int64_t n_removed = 0;
  const Status status = change_record(id, [&](SessionRecord& record, WriteBatch& batch) -> Status {
    CAIRN_ASSIGN_OR_RETURN(LogTree tree, LogTree::read(*storage_, record));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<SessionRecord> sessions, list_sessions(*storage_));
    tree.keep(record.head_sequence);
    record.n_branches = 0;
    for (const LogPlace& place : tree.places(record.head_sequence)) {
      if (place.rewound && place.time_ms < left_before_ms) continue;
      tree.keep(place.event);
      if (place.rewound) ++record.n_branches;
    }
    for (const std::uint64_t point : fork_points(sessions, id)) {
      if (tree.is_unneeded(point)) ++record.n_branches;  // goes when the fork is gone
      tree.keep(point);
    }
    CAIRN_ASSIGN_OR_RETURN(const FoundTails found, find_tails(id));
    for (const TailRecord& tail : found.tails) {
      const bool is_lost = tail.slot != kHeadTail && tree.is_unneeded(tail.slot);
      if (is_lost) CAIRN_RETURN_IF_ERROR(drop_tail(id, tail.slot));
    }
    for (const std::uint64_t event : tree.unneeded()) {
      batch.remove(Family::kEvents, event_key(id, event));
      ++n_removed;
    }
    record.n_events -= static_cast<std::uint64_t>(n_removed);
    return {};
  });
  if (!status.ok()) return status;
  return n_removed;
}

}  // namespace cairn::session
