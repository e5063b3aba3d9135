// Implements cairn::StoreReader of cairn/store.h. Everything is read from a snapshot of the
// database (rocksdb_snapshot.h): the owner goes on meanwhile and never notices.
#include "session/store_reader.h"

#include <algorithm>
#include <vector>

#include "session/encrypted_storage.h"
#include "session/rocksdb_snapshot.h"
#include "session/session_export.h"
#include "session/session_view.h"
#include "session/storage_key.h"
#include "session/store_keys.h"
#include "session/store_state.h"
#include "session/store_verifier.h"
#include "session/stored_records.h"

namespace cairn {
namespace session {
namespace {

Result<StoreHeader> read_header(Storage& storage, const DirectoryView& directory,
                                const std::string& path) {
  const Result<std::string> content = get_record(storage, Family::kMeta, std::string(kHeaderKey));
  if (content.status().code() == StatusCode::kNotFound) {
    return directory.format_file == FormatFile::kMissing
               ? Status(StatusCode::kNotFound, "there is none yet: its making was interrupted")
               : corrupt("its database has lost the store's header");
  }
  if (!content.ok()) return content.status();
  CAIRN_ASSIGN_OR_RETURN(StoreHeader header, decode_store_header(*content));
  CAIRN_RETURN_IF_ERROR(check_readable(header, path));
  return header;
}

}  // namespace

Result<std::shared_ptr<StoreReaderState>> StoreReaderState::open(const std::string& path,
                                                                 const StoreSecret& secret) {
  CAIRN_ASSIGN_OR_RETURN(DirectoryView directory, look_into(path));
  const std::string subject = "store " + path;
  StoreLock lock(secret);
  if (directory.format_file == FormatFile::kValid) {
    CAIRN_RETURN_IF_ERROR(with_subject(subject, lock.open(directory.format)));
  }
  Result<std::unique_ptr<Storage>> storage = open_rocksdb_snapshot(path + "/db");
  if (storage.status().code() == StatusCode::kNotFound) {
    return corrupt("store " + path + ": its database is missing",
                   "restore the directory from a copy, or name another one");
  }
  if (!storage.ok()) return storage.status();
  Result<StoreHeader> header = read_header(**storage, directory, path);
  CAIRN_RETURN_IF_ERROR(with_subject(subject, header.status()));
  CAIRN_RETURN_IF_ERROR(with_subject(subject, lock.open(*header)));
  if (std::optional<StoreKeys> keys = lock.take_keys()) {
    storage = encrypted_storage(std::move(*storage), std::move(*keys));
  }
  return std::shared_ptr<StoreReaderState>(
      new StoreReaderState(path, std::move(directory), std::move(*header), std::move(*storage)));
}

}  // namespace session

Result<StoreReader> StoreReader::open(const std::string& directory, const StoreSecret& secret) {
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<session::StoreReaderState> state,
                         session::StoreReaderState::open(directory, secret));
  return StoreReader(std::move(state));
}

std::string StoreReader::owner() const { return state_->directory().owner; }

Result<std::vector<SessionInfo>> StoreReader::list() const {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<session::SessionRecord> records,
                         session::list_sessions(state_->storage()));
  std::vector<SessionInfo> infos;
  for (const session::SessionRecord& record : records) {
    if (!record.removed) infos.push_back(session::session_info(record));
  }
  return infos;
}

Result<SessionTree> StoreReader::show(const std::string& name) const {
  return session::show_session(state_->storage(), name);
}

Result<StoreStats> StoreReader::stats() const {
  return session::read_stats(state_->storage(), state_->path());
}

Result<VerifyReport> StoreReader::verify() const {
  return session::verify_store(state_->storage(), state_->directory());
}

Status StoreReader::export_session(const std::string& name, const std::string& file) const {
  return session::export_session(state_->storage(), name, file);
}

}  // namespace cairn
