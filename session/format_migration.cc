// Format 1 kept a tail under its index key, and a session record did not say which turn is open,
// how many there were, and how far the head's blocks were stored.
#include "session/format_migration.h"

#include <string>
#include <variant>
#include <vector>

#include "session/records.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

Status write_tail(Storage& storage, TailStore& tails, const TailRecord& record,
                  const std::string& old_key, std::string_view payload) {
  WriteBatch batch;
  TailStore::Changes changes(tails, batch);
  CAIRN_RETURN_IF_ERROR(
      changes.put(record.session, {.slot = record.slot,
                                   .position = record.position,
                                   .chain_key = record.chain_key,
                                   .sequence = record.sequence,
                                   .payload = std::as_bytes(std::span(payload))}));
  batch.remove(Family::kTails, old_key);
  CAIRN_RETURN_IF_ERROR(storage.write(batch, Durability::kBuffered));
  changes.written();
  return {};
}

Status drop_tail(Storage& storage, TailStore& tails, const TailRecord& record,
                 const std::string& old_key) {
  WriteBatch batch;
  TailStore::Changes changes(tails, batch);
  changes.remove({record.session, record.slot});
  batch.remove(Family::kTails, old_key);
  CAIRN_RETURN_IF_ERROR(storage.write(batch, Durability::kBuffered));
  changes.written();
  return {};
}

Status move_tail(Storage& storage, TailStore& tails, const TailRecord& record) {
  const std::string old_key = tail_key(record.session, record.slot);
  const Result<std::string> value = storage.get(Family::kTails, old_key);
  if (value.status().code() == StatusCode::kNotFound) {
    return drop_tail(storage, tails, record, old_key);
  }
  if (!value.ok()) return value.status();
  const Result<PayloadView> view = unseal_payload(Family::kTails, old_key, *value);
  if (!view.ok()) return drop_tail(storage, tails, record, old_key);
  const Status moved = write_tail(storage, tails, record, old_key, view->payload);
  if (moved.code() != StatusCode::kOutOfDisk) return moved;
  return drop_tail(storage, tails, record, old_key);
}

Status move_tails(Storage& storage, TailStore& tails) {
  std::vector<TailRecord> unnumbered;
  CAIRN_RETURN_IF_ERROR(tails.visit([&](const TailRecord& record) {
    if (record.number == 0) unnumbered.push_back(record);
    return true;
  }));
  for (const TailRecord& record : unnumbered) {
    CAIRN_RETURN_IF_ERROR(move_tail(storage, tails, record));
  }
  return {};
}

// Logs of format 1 are linear: the newest event is the head.
Status fill_in(Storage& storage, TailStore& tails, SessionRecord& record) {
  CAIRN_RETURN_IF_ERROR(visit_events(storage, record.id, 1, [&](LogEvent&& event) {
    if (const auto* const started = std::get_if<TurnStarted>(&event.body)) {
      record.open_turn = event.sequence;
      record.n_turns = started->turn + 1;
    } else if (std::holds_alternative<TurnEnded>(event.body)) {
      record.open_turn = 0;
    }
    return true;
  }));
  const Result<TailRecord> head = tails.find({record.id, kHeadTail});
  if (head.ok() && head->position >= kBlockTokens) {
    record.chain_key = head->chain_key;
    record.stored_blocks = static_cast<std::uint32_t>(head->position / kBlockTokens);
  }
  return {};
}

Status fill_in_sessions(Storage& storage, TailStore& tails) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<SessionRecord> sessions, list_sessions(storage));
  for (SessionRecord& record : sessions) {
    CAIRN_RETURN_IF_ERROR(fill_in(storage, tails, record));
    WriteBatch batch;
    CAIRN_RETURN_IF_ERROR(
        put_record(Family::kSessions, session_key(record.id), encode(record), batch));
    CAIRN_RETURN_IF_ERROR(storage.write(batch, Durability::kBuffered));
  }
  return {};
}

}  // namespace

Status migrate_from_format_1(Storage& storage, TailStore& tails) {
  CAIRN_RETURN_IF_ERROR(move_tails(storage, tails));
  return fill_in_sessions(storage, tails);
}

}  // namespace cairn::session
