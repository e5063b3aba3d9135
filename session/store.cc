// Implements cairn::Store of cairn/store.h.
#include "session/session_import.h"
#include "session/store_state.h"

namespace cairn {
namespace session {

SessionInfo session_info(const SessionRecord& record) {
  SessionInfo info;
  info.id = record.id.to_hex();
  info.name = record.name;
  info.model_fingerprint = record.model_fingerprint;
  info.created_ms = record.created_ms;
  info.used_ms = record.used_ms;
  info.n_events = static_cast<std::int64_t>(record.n_events);
  info.n_tokens = record.head_tokens;
  info.turn_open = record.turn_open;
  if (record.origin) info.forked_from = record.origin->to_hex();
  info.labels = record.labels;
  return info;
}

}  // namespace session

Result<Store> Store::open(const Runtime& runtime, const std::string& directory,
                          const StoreOptions& options) {
  if (options.live_bytes < 0) {
    return invalid_argument("live_bytes is " + std::to_string(options.live_bytes) +
                            ", must be 0 (an eighth of the machine's memory) or more");
  }
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<session::SessionStore> store,
                         session::SessionStore::open(directory, options));
  const std::int64_t live_bytes =
      options.live_bytes > 0 ? options.live_bytes : session::LiveMemory::default_budget();
  return Store(
      std::make_shared<session::StoreState>(runtime.state(), std::move(store), live_bytes));
}

Result<std::vector<SessionInfo>> Store::list() const {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<session::SessionRecord> records, state_->store().list());
  std::vector<SessionInfo> infos;
  infos.reserve(records.size());
  for (const session::SessionRecord& record : records) {
    infos.push_back(session::session_info(record));
  }
  return infos;
}

Result<StoreStats> Store::stats() const {
  CAIRN_ASSIGN_OR_RETURN(const session::SessionStoreStats stats, state_->store().stats());
  StoreStats out;
  out.bytes_on_disk = stats.bytes_on_disk;
  out.bytes_live = state_->live_memory().bytes();
  out.n_sessions = stats.n_sessions;
  out.n_blocks = stats.n_blocks;
  out.n_tails = stats.n_tails;
  out.quota_bytes = state_->store().space().quota();
  out.counters = state_->store().read_counters();
  out.recovery = recovery();
  return out;
}

StoreRecovery Store::recovery() const { return state_->store().recovery(); }

Status Store::remove(const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const session::SessionRecord record, state_->store().find_by_name(name));
  return state_->collector().remove_session(record.id).status();
}

Result<CollectReport> Store::collect(const CollectOptions& options) {
  return state_->collector().collect(options);
}

Status Store::rename(const std::string& name, const std::string& new_name) {
  CAIRN_ASSIGN_OR_RETURN(const session::SessionRecord record, state_->store().find_by_name(name));
  return state_->store().rename_session(record.id, new_name);
}

Status Store::set_labels(const std::string& name,
                         const std::map<std::string, std::string>& labels) {
  CAIRN_ASSIGN_OR_RETURN(const session::SessionRecord record, state_->store().find_by_name(name));
  return state_->store().set_labels(record.id, labels);
}

Result<SessionInfo> Store::import_session(const std::string& file, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const session::SessionRecord record,
                         session::import_session(state_->store(), file, name));
  return session::session_info(record);
}

}  // namespace cairn
