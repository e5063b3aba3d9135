#include "session/stored_records.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "session/sealed_value.h"
#include "session/storage_key.h"

namespace cairn::session {
namespace {

std::string subject_of_event(std::string_view key) {
  return "event " + std::to_string(parse_event_sequence(key).value_or(0));
}

}  // namespace

Status with_subject(const std::string& subject, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), subject + ": " + std::string(status.message()),
          std::string(status.hint())};
}

std::string subject_of(const SessionId& id) { return "session " + id.to_hex(); }

Status no_session(const std::string& which) {
  return {StatusCode::kNotFound, "session " + which + ": there is none in this store"};
}

Result<std::string> get_record(Storage& storage, Family family, const std::string& key) {
  CAIRN_ASSIGN_OR_RETURN(const std::string value, storage.get(family, key));
  return unseal_record(family, key, value);
}

Result<SessionRecord> decode_session_entry(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, unseal_record(Family::kSessions, key, value));
  return decode_session_record(content);
}

Result<LogEvent> decode_log_entry(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, unseal_record(Family::kEvents, key, value));
  CAIRN_ASSIGN_OR_RETURN(LogEvent event, decode_event(content));
  if (parse_event_sequence(key) != event.sequence) return corrupt("stored event: wrong sequence");
  return event;
}

Result<BlockRecord> decode_block_entry(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, unseal_record(Family::kBlockIndex, key, value));
  return decode_block_record(content);
}

Result<TailRecord> decode_tail_entry(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, unseal_record(Family::kTailIndex, key, value));
  return decode_tail_record(content);
}

Result<SessionRecord> load_session(Storage& storage, const SessionId& id) {
  const std::string key = session_key(id);
  const Result<std::string> value = storage.get(Family::kSessions, key);
  if (value.status().code() == StatusCode::kNotFound) return no_session(id.to_hex());
  if (!value.ok()) return with_subject(subject_of(id), value.status());
  Result<SessionRecord> record = decode_session_entry(key, *value);
  if (!record.ok()) return with_subject(subject_of(id), record.status());
  return record;
}

Result<SessionRecord> find_session(Storage& storage, std::string_view name) {
  const Result<std::string> content = get_record(storage, Family::kMeta, name_key(name));
  if (content.status().code() == StatusCode::kNotFound) return no_session(std::string(name));
  if (!content.ok()) return with_subject("session " + std::string(name), content.status());
  CAIRN_ASSIGN_OR_RETURN(const SessionId id, decode_session_name(*content));
  return load_session(storage, id);
}

Result<std::vector<SessionRecord>> list_sessions(Storage& storage) {
  std::vector<SessionRecord> sessions;
  Status status;
  CAIRN_RETURN_IF_ERROR(
      storage.scan(Family::kSessions, "", "", [&](std::string_view key, std::string_view value) {
        Result<SessionRecord> record = decode_session_entry(key, value);
        status = record.status();
        if (record.ok()) sessions.push_back(std::move(*record));
        return status.ok();
      }));
  CAIRN_RETURN_IF_ERROR(with_subject("session list", status));
  std::ranges::sort(sessions, [](const SessionRecord& a, const SessionRecord& b) {
    return a.used_ms != b.used_ms ? a.used_ms > b.used_ms : a.name < b.name;
  });
  return sessions;
}

Result<std::vector<LogPart>> log_parts(Storage& storage, const SessionRecord& record) {
  std::vector<LogPart> parts;
  SessionRecord owner = record;
  for (std::uint64_t last = UINT64_MAX;;) {
    parts.push_back({owner.id, owner.origin ? owner.origin_sequence + 1 : 1, last});
    if (!owner.origin) break;
    last = std::min(last, owner.origin_sequence);
    const SessionId origin = *owner.origin;
    if (std::ranges::find(parts, origin, &LogPart::session) != parts.end()) {
      return corrupt(subject_of(record.id) + ": it is its own origin");
    }
    Result<SessionRecord> next = load_session(storage, origin);
    if (next.status().code() == StatusCode::kNotFound) {
      return corrupt(subject_of(record.id) + ": its origin " + origin.to_hex() + " is missing");
    }
    if (!next.ok()) return next.status();
    owner = std::move(*next);
  }
  std::ranges::reverse(parts);
  return parts;
}

Result<LogEvent> read_event(Storage& storage, const SessionId& id, std::uint64_t sequence) {
  const std::string key = event_key(id, sequence);
  const std::string subject = subject_of(id) + ": " + subject_of_event(key);
  const Result<std::string> value = storage.get(Family::kEvents, key);
  if (value.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kNotFound, subject + ": there is none");
  }
  if (!value.ok()) return with_subject(subject, value.status());
  Result<LogEvent> event = decode_log_entry(key, *value);
  if (!event.ok()) return with_subject(subject, event.status());
  return event;
}

void visit_chains(LogEvent& event,
                  const std::function<void(BlockKey& key, std::uint32_t& n_blocks)>& visit) {
  if (auto* mark = std::get_if<MarkSet>(&event.body)) {
    visit(mark->chain_key, mark->stored_blocks);
  } else if (auto* rewind = std::get_if<HeadMoved>(&event.body)) {
    visit(rewind->chain_key, rewind->stored_blocks);
  }
  if (event.head) visit(event.head->chain_key, event.head->stored_blocks);
}

Status visit_events(Storage& storage, const SessionId& id, std::uint64_t first,
                    const std::function<bool(LogEvent&&)>& visit) {
  Status status;
  CAIRN_RETURN_IF_ERROR(storage.scan(Family::kEvents, session_key(id), event_key(id, first),
                                     [&](std::string_view key, std::string_view value) {
                                       Result<LogEvent> event = decode_log_entry(key, value);
                                       if (event.ok()) return visit(std::move(*event));
                                       status = with_subject(subject_of_event(key), event.status());
                                       return false;
                                     }));
  return with_subject(subject_of(id), status);
}

}  // namespace cairn::session
