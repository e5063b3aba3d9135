// SessionStore's part about which sessions there are: names, labels, leases, forks. Whoever writes
// the record of an open session does so under its OpenSession::mutex, and of one that is not open
// under names_mutex_, which opening takes too; so no writer works on a record that another
// replaces.
#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/utf8.h"
#include "session/sealed_value.h"
#include "session/session_store.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kSessionNameBytesMax) {
    return invalid_argument("session name: " + std::to_string(name.size()) + " bytes; 1 to " +
                            std::to_string(kSessionNameBytesMax) + " are allowed");
  }
  if (engine::valid_utf8_prefix(name) != name.size()) {
    return invalid_argument("session name: not UTF-8");
  }
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(name, is_control)) {
    return invalid_argument("session name: holds a control character");
  }
  return {};
}

Status check_name_is_free(Storage& storage, const std::string& name) {
  const Result<std::string> existing = storage.get(Family::kMeta, name_key(name));
  if (existing.ok()) return {StatusCode::kAlreadyExists, "session " + name + ": exists already"};
  return existing.status().code() == StatusCode::kNotFound ? Status() : existing.status();
}

Status check_labels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kLabelsMax) {
    return invalid_argument("labels: " + std::to_string(labels.size()) + "; at most " +
                            std::to_string(kLabelsMax) + " are allowed");
  }
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > kLabelKeyBytesMax) {
      return invalid_argument("labels: a key of " + std::to_string(key.size()) + " bytes; 1 to " +
                              std::to_string(kLabelKeyBytesMax) + " are allowed");
    }
    if (value.size() > kLabelValueBytesMax) {
      return invalid_argument("labels: '" + key + "' has " + std::to_string(value.size()) +
                              " bytes; at most " + std::to_string(kLabelValueBytesMax) +
                              " are allowed");
    }
    if (engine::valid_utf8_prefix(key) != key.size() ||
        engine::valid_utf8_prefix(value) != value.size()) {
      return invalid_argument("labels: a key or a value is not UTF-8");
    }
  }
  return {};
}

}  // namespace

SessionLease::SessionLease(std::shared_ptr<OpenSessions> open, const SessionId& id,
                           std::shared_ptr<OpenSession> session)
    : open_(std::move(open)), id_(id), session_(std::move(session)) {}

SessionLease& SessionLease::operator=(SessionLease&& other) noexcept {
  std::swap(open_, other.open_);
  std::swap(id_, other.id_);
  std::swap(session_, other.session_);
  return *this;
}

SessionLease::~SessionLease() {
  if (open_) open_->remove(id_);
}

Result<SessionRecord> SessionStore::create_session(const NewSession& session) {
  CAIRN_RETURN_IF_ERROR(check_name(session.name));
  SessionRecord record;
  CAIRN_ASSIGN_OR_RETURN(record.id, random_session_id());
  record.name = session.name;
  record.created_ms = record.used_ms = now_ms();
  record.model_fingerprint = session.model_fingerprint;
  record.options = session.options;
  record.kv_namespace = session.kv_namespace;

  WriteBatch batch;
  CAIRN_RETURN_IF_ERROR(add_session(record, batch, Durability::kSynced));
  return record;
}

Result<SessionRecord> SessionStore::fork_session(const NewFork& fork) {
  CAIRN_RETURN_IF_ERROR(check_name(fork.name));
  SessionRecord record;
  CAIRN_ASSIGN_OR_RETURN(record.id, random_session_id());
  record.name = fork.name;
  record.created_ms = record.used_ms = now_ms();
  record.model_fingerprint = fork.origin.model_fingerprint;
  record.options = fork.origin.options;
  record.kv_namespace = fork.origin.kv_namespace;
  record.prefill_us_per_token = fork.origin.prefill_us_per_token;
  record.restore_us_per_mib = fork.origin.restore_us_per_mib;
  record.origin = fork.origin.id;
  record.origin_sequence = fork.sequence;
  record.n_events = fork.events.size();
  record.head_sequence = fork.sequence + record.n_events;
  set_head(record, fork.head);
  WriteBatch batch;
  for (const LogEvent& event : fork.events) {
    CAIRN_ASSIGN_OR_RETURN(const std::string content, encode(event));
    CAIRN_RETURN_IF_ERROR(
        put_record(Family::kEvents, event_key(record.id, event.sequence), content, batch));
  }
  TailStore::Changes tails(tails_, batch);
  for (const TailRecord& tail : fork.tails) {
    const TailSlot from = {tail.session, tail.slot};
    if (&tail == &fork.tails.front()) {
      CAIRN_RETURN_IF_ERROR(tails.share(from, {record.id, kHeadTail}).status());
    }
    CAIRN_RETURN_IF_ERROR(tails.share(from, {record.id, tail.sequence}).status());
  }
  const bool buffered = record.options.durability == SessionDurability::kBuffered;
  CAIRN_RETURN_IF_ERROR(
      add_session(record, batch, buffered ? Durability::kBuffered : Durability::kSynced));
  tails.written();
  return record;
}

Result<SessionRecord> SessionStore::adopt_session(AdoptedSession session) {
  SessionRecord& record = session.record;
  CAIRN_RETURN_IF_ERROR(check_name(record.name));
  CAIRN_ASSIGN_OR_RETURN(record.id, random_session_id());
  record.n_events = session.events.size();
  WriteBatch batch;
  for (const EncodedEvent& event : session.events) {
    CAIRN_RETURN_IF_ERROR(
        put_record(Family::kEvents, event_key(record.id, event.sequence), event.content, batch));
  }
  TailStore::Changes tails(tails_, batch);
  for (const NewTail& tail : session.tails) CAIRN_RETURN_IF_ERROR(tails.put(record.id, tail));
  CAIRN_RETURN_IF_ERROR(add_session(record, batch, Durability::kSynced));
  tails.written();
  return record;
}

Status SessionStore::add_session(const SessionRecord& record, WriteBatch& batch,
                                 Durability durability) {
  const std::lock_guard lock(names_mutex_);
  const std::string key = name_key(record.name);
  CAIRN_RETURN_IF_ERROR(check_name_is_free(*storage_, record.name));
  CAIRN_RETURN_IF_ERROR(put_record(Family::kMeta, key, encode_session_name(record.id), batch));
  CAIRN_RETURN_IF_ERROR(
      put_record(Family::kSessions, session_key(record.id), encode(record), batch));
  return storage_->write(batch, durability);
}

Result<SessionRecord> SessionStore::load_session(const SessionId& id) {
  return session::load_session(*storage_, id);
}

Result<SessionRecord> SessionStore::find_by_name(std::string_view name) {
  return find_session(*storage_, name);
}

Result<std::vector<SessionRecord>> SessionStore::list() {
  CAIRN_ASSIGN_OR_RETURN(std::vector<SessionRecord> sessions, list_sessions(*storage_));
  std::erase_if(sessions, [](const SessionRecord& record) { return record.removed; });
  return sessions;
}

Result<SessionLease> SessionStore::lease(const SessionId& id) {
  const auto session = std::make_shared<OpenSession>();
  const std::lock_guard loading(session->mutex);  // from when others find it until it is loaded
  if (!open_sessions_->add(id, session)) {
    const Result<SessionRecord> record = load_session(id);
    const std::string subject = record.ok() ? "session " + record->name : subject_of(id);
    return Status(StatusCode::kBusy, subject + ": open elsewhere in this process",
                  "use the session that is open, or close it first");
  }
  SessionLease lease(open_sessions_, id, session);
  const std::lock_guard lock(names_mutex_);
  CAIRN_ASSIGN_OR_RETURN(session->record, load_session(id));
  if (session->record.removed) return no_session(id.to_hex());
  return lease;
}

Status SessionStore::change_record(const SessionId& id, const RecordChange& change) {
  while (true) {
    const std::shared_ptr<OpenSession> open = open_sessions_->find(id);
    std::unique_lock<std::mutex> open_lock;
    if (open) open_lock = std::unique_lock(open->mutex);
    const std::lock_guard lock(names_mutex_);
    if (open_sessions_->find(id) != open) continue;  // opened or closed meanwhile
    CAIRN_ASSIGN_OR_RETURN(SessionRecord record, load_session(id));
    if (record.removed) return no_session(id.to_hex());
    if (open && open->running) {
      return {StatusCode::kBusy, "session '" + record.name + "' runs a turn",
              "wait for the turn's end or cancel it first"};
    }
    if (open) record = open->record;
    WriteBatch batch;
    CAIRN_RETURN_IF_ERROR(change(record, batch));
    CAIRN_RETURN_IF_ERROR(put_record(Family::kSessions, session_key(id), encode(record), batch));
    CAIRN_RETURN_IF_ERROR(storage_->write(batch, Durability::kSynced));
    if (open) open->record = std::move(record);
    return {};
  }
}

Status SessionStore::rename_session(const SessionId& id, const std::string& new_name) {
  CAIRN_RETURN_IF_ERROR(check_name(new_name));
  return change_record(id, [&](SessionRecord& record, WriteBatch& batch) -> Status {
    if (record.name == new_name) return {};
    CAIRN_RETURN_IF_ERROR(check_name_is_free(*storage_, new_name));
    batch.remove(Family::kMeta, name_key(record.name));
    record.name = new_name;
    return put_record(Family::kMeta, name_key(new_name), encode_session_name(id), batch);
  });
}

Status SessionStore::set_labels(const SessionId& id,
                                const std::map<std::string, std::string>& labels) {
  CAIRN_RETURN_IF_ERROR(check_labels(labels));
  return change_record(id, [&](SessionRecord& record, WriteBatch&) -> Status {
    record.labels = labels;
    return {};
  });
}

}  // namespace cairn::session
