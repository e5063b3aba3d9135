// Sessions, logs, tails and commits on a Storage. A commit is one write batch: whatever instant the
// process dies at, the next open finds all of it or nothing. The log is the authority; session
// records repeat what `list` shows, blocks and tails can be computed again.
#include "session/session_store.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "cairn/version.h"
#include "session/bounded_storage.h"
#include "session/encrypted_storage.h"
#include "session/format_migration.h"
#include "session/rocksdb_storage.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "session/stored_records.h"

namespace cairn::session {
namespace {

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

Status check_quota(const std::string& path, const StoreOptions& options) {
  if (options.quota_bytes == 0 || options.quota_bytes >= kQuotaBytesMin) return {};
  return invalid_argument(
      "store " + path + ": a quota of " + std::to_string(options.quota_bytes) + " bytes",
      "give at least " + std::to_string(kQuotaBytesMin));
}

Result<std::int64_t> quota_of(const StoreDirectory& directory, const StoreOptions& options) {
  if (options.quota_bytes != 0) return options.quota_bytes;
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t n_bytes, directory.bytes_on_disk());
  return default_quota(directory.path(), n_bytes);
}

// -- opening --

Result<std::int64_t> count_keys(Storage& storage, Family family) {
  std::int64_t count = 0;
  CAIRN_RETURN_IF_ERROR(storage.scan(family, "", "", [&](std::string_view, std::string_view) {
    ++count;
    return true;
  }));
  return count;
}

Result<StoreHeader> create_header(Storage& database, StoreLock& lock) {
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t n_sessions, count_keys(database, Family::kSessions));
  if (n_sessions > 0) return corrupt("its database has sessions but no header");
  StoreHeader header;
  CAIRN_ASSIGN_OR_RETURN(const SessionId id, random_session_id());
  header.store_id = id.bytes;
  header.created_ms = now_ms();
  header.created_by = std::string("cairn ") + version();
  CAIRN_RETURN_IF_ERROR(lock.close(header));
  WriteBatch batch;
  CAIRN_RETURN_IF_ERROR(put_record(Family::kMeta, std::string(kHeaderKey), encode(header), batch));
  CAIRN_RETURN_IF_ERROR(database.write(batch, Durability::kSynced));
  return header;
}

// Brings the header in the database and FORMAT into agreement, and opens the lock. FORMAT is
// written after the header, so a missing FORMAT is an unfinished creation and a damaged one can be
// written anew.
Result<StoreHeader> agree_on_header(StoreDirectory& directory, Storage& database, StoreLock& lock) {
  const FormatFile file = directory.format_file();
  const Result<std::string> content = get_record(database, Family::kMeta, std::string(kHeaderKey));
  if (content.status().code() == StatusCode::kNotFound) {
    if (file != FormatFile::kMissing) return corrupt("its database has lost the store's header");
    CAIRN_ASSIGN_OR_RETURN(StoreHeader header, create_header(database, lock));
    CAIRN_RETURN_IF_ERROR(directory.write_format(header));
    return header;
  }
  if (!content.ok()) return content.status();
  CAIRN_ASSIGN_OR_RETURN(StoreHeader header, decode_store_header(*content));
  CAIRN_RETURN_IF_ERROR(check_readable(header, directory.path()));
  if (file == FormatFile::kValid && directory.format().store_id != header.store_id) {
    return corrupt("its FORMAT and its database belong to different stores");
  }
  CAIRN_RETURN_IF_ERROR(lock.open(header));
  if (file != FormatFile::kValid || directory.format().key_wrap != header.key_wrap) {
    CAIRN_RETURN_IF_ERROR(directory.write_format(header));
  }
  return header;
}

Result<MarkedStorage> open_database(const StoreDirectory& directory) {
  CAIRN_ASSIGN_OR_RETURN(OpenedMark mark,
                         open_mark(directory.mark_path(), directory.database_path()));
  // FORMAT is written last: where it is, there must be a database.
  const bool is_new = directory.format_file() == FormatFile::kMissing;
  Result<std::unique_ptr<Storage>> storage =
      open_rocksdb_storage(directory.database_path(), {.create_if_missing = is_new});
  if (storage.status().code() == StatusCode::kNotFound) {
    return corrupt("store " + directory.path() + ": its database is missing",
                   "restore the directory from a copy, or name another one");
  }
  if (!storage.ok()) return storage.status();
  return mark_storage(std::move(*storage), std::move(mark));
}

}  // namespace

SessionStore::SessionStore(StoreDirectory directory, StoreHeader header, std::string kv_salt,
                           std::unique_ptr<Storage> storage, std::int64_t quota_bytes)
    : directory_(std::move(directory)),
      space_(directory_.path(), quota_bytes, [this] { return measure_space(); }),
      storage_(bound_storage(std::move(storage), space_)),
      blocks_(*storage_, counters_),
      tails_(*storage_, counters_),
      header_(std::move(header)),
      kv_salt_(std::move(kv_salt)),
      open_sessions_(std::make_shared<OpenSessions>()) {}

Result<std::unique_ptr<SessionStore>> SessionStore::open(const std::string& path,
                                                         const StoreOptions& options) {
  CAIRN_RETURN_IF_ERROR(check_quota(path, options));
  CAIRN_ASSIGN_OR_RETURN(
      StoreDirectory directory,
      StoreDirectory::open(path, options.create_if_missing, options.allow_network_file_system));
  // A wrong secret shows before anything is touched.
  StoreLock lock(options.secret);
  if (directory.format_file() == FormatFile::kValid) {
    CAIRN_RETURN_IF_ERROR(with_subject("store " + path, lock.open(directory.format())));
  }
  CAIRN_ASSIGN_OR_RETURN(MarkedStorage database, open_database(directory));
  return open_on(std::move(directory), std::move(database), options, lock);
}

Result<std::unique_ptr<SessionStore>> SessionStore::open_on(StoreDirectory directory,
                                                            std::unique_ptr<Storage> storage,
                                                            const StoreOptions& options) {
  StoreLock lock(options.secret);
  return open_on(std::move(directory), {std::move(storage), {}}, options, lock);
}

Result<std::unique_ptr<SessionStore>> SessionStore::open_on(StoreDirectory directory,
                                                            MarkedStorage database,
                                                            const StoreOptions& options,
                                                            StoreLock& lock) {
  const std::string subject = "store " + directory.path();
  std::unique_ptr<Storage> storage = std::move(database.storage);
  Result<StoreHeader> header = agree_on_header(directory, *storage, lock);
  CAIRN_RETURN_IF_ERROR(with_subject(subject, header.status()));
  std::string kv_salt;
  if (std::optional<StoreKeys> keys = lock.take_keys()) {
    kv_salt = keys->kv_salt;
    storage = encrypted_storage(std::move(storage), std::move(*keys));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t quota_bytes, quota_of(directory, options));
  std::unique_ptr<SessionStore> store(new SessionStore(std::move(directory), std::move(*header),
                                                       std::move(kv_salt), std::move(storage),
                                                       quota_bytes));
  CAIRN_RETURN_IF_ERROR(store->space_.measure());
  CAIRN_RETURN_IF_ERROR(with_subject(subject, store->blocks_.load_namespaces()));
  CAIRN_RETURN_IF_ERROR(with_subject(subject, store->tails_.load()));
  CAIRN_RETURN_IF_ERROR(with_subject(subject, store->migrate()));
  CAIRN_RETURN_IF_ERROR(store->counters_.load(*store->storage_));
  store->counting_ = true;
  store->note_recovery(std::move(database.recovery));
  return store;
}

// Errors, those of memory too, are of no use to anyone here: the counts are those of the last
// synced commit then.
SessionStore::~SessionStore() {
  if (!counting_) return;
  try {
    WriteBatch batch;
    if (counters_.put(*storage_, batch).ok()) (void)storage_->write(batch, Durability::kBuffered);
  } catch (...) {
  }
}

Result<Space::Gauge> SessionStore::measure_space() const {
  Space::Gauge gauge;
  CAIRN_ASSIGN_OR_RETURN(gauge.bytes_on_disk, directory_.bytes_on_disk());
  for (const Family family : {Family::kMeta, Family::kSessions, Family::kEvents,
                              Family::kBlockIndex, Family::kTailIndex}) {
    gauge.rewritable = std::max(gauge.rewritable, storage_->table_bytes(family));
  }
  return gauge;
}

// Older versions are kept out before anything changes; a migration that was interrupted begins
// again.
Status SessionStore::migrate() {
  if (header_.format_version == kFormatVersion) return {};
  header_.reader_version = kReaderVersion;
  CAIRN_RETURN_IF_ERROR(write_header());
  CAIRN_RETURN_IF_ERROR(migrate_from_format_1(*storage_, tails_));
  header_.format_version = kFormatVersion;
  return write_header();
}

Status SessionStore::write_header() {
  WriteBatch batch;
  CAIRN_RETURN_IF_ERROR(put_record(Family::kMeta, std::string(kHeaderKey), encode(header_), batch));
  CAIRN_RETURN_IF_ERROR(storage_->write(batch, Durability::kSynced));
  return directory_.write_format(header_);
}

// Where the record cannot be written the mark stays as it was: the next open finds the same.
void SessionStore::note_recovery(StoreRecovery recovery) {
  recovery_ = std::move(recovery);
  if (recovery_.detail.empty()) return;
  const Incident incident = {
      .time_ms = now_ms(), .commits_lost = recovery_.commits_lost, .detail = recovery_.detail};
  WriteBatch batch;
  const Status added =
      put_record(Family::kMeta, incident_key(incident.time_ms), encode(incident), batch);
  if (added.ok()) (void)storage_->write(batch, Durability::kSynced);
}

// -- log --

Status SessionStore::visit_events(const SessionId& id, std::uint64_t first,
                                  const std::function<bool(LogEvent&&)>& visit) {
  return session::visit_events(*storage_, id, first, visit);
}

Result<LogEvent> SessionStore::read_event(const SessionId& id, std::uint64_t sequence) {
  return session::read_event(*storage_, id, sequence);
}

Result<SessionLog> SessionStore::log(const SessionRecord& record) {
  return SessionLog::open(*storage_, record);
}

Result<LogTree> SessionStore::log_tree(const SessionRecord& record) {
  return LogTree::read(*storage_, record);
}

Result<std::vector<LogEvent>> SessionStore::read_events(const SessionId& id, std::uint64_t first) {
  std::vector<LogEvent> events;
  CAIRN_RETURN_IF_ERROR(visit_events(id, first, [&](LogEvent&& event) {
    events.push_back(std::move(event));
    return true;
  }));
  return events;
}

// -- commits --

Status SessionStore::check_commit(const Commit& commit) {
  std::uint64_t last = 0;
  for (const LogEvent& event : commit.events) {
    if (event.sequence <= last) return invalid_argument("commit: sequences do not ascend from 1");
    if (event.parent >= event.sequence) {
      return invalid_argument("commit: event " + std::to_string(event.sequence) +
                              " has a parent that is not before it");
    }
    if (std::holds_alternative<UnknownEvent>(event.body)) {
      return invalid_argument("commit: event " + std::to_string(event.sequence) + " has no kind");
    }
    last = event.sequence;
  }
  std::int64_t n_bytes = 0;
  for (const NewBlock& block : commit.blocks) {
    if (block.tokens.size() != kBlockTokens) {
      return invalid_argument("commit: a block of " + std::to_string(block.tokens.size()) +
                              " tokens instead of " + std::to_string(kBlockTokens));
    }
    n_bytes += static_cast<std::int64_t>(block.payload.size());
  }
  if (commit.tail) n_bytes += static_cast<std::int64_t>(commit.tail->payload.size());
  if (n_bytes > kCommitBytesMax) {
    return invalid_argument("commit: " + std::to_string(n_bytes) + " bytes of payload; at most " +
                                std::to_string(kCommitBytesMax) + " are allowed",
                            "write the blocks in several commits");
  }
  // The session must exist, or a log without a name would stay behind.
  CAIRN_ASSIGN_OR_RETURN(const SessionRecord stored, load_session(commit.session));
  if (commit.record &&
      (commit.record->id != commit.session || commit.record->name != stored.name)) {
    return invalid_argument("commit: the record is of another session or renames it");
  }
  return {};
}

Status SessionStore::add_events(const Commit& commit, WriteBatch& batch) {
  if (commit.events.empty()) return {};
  const std::uint64_t first = commit.events.front().sequence;
  const Result<std::string> existing =
      storage_->get(Family::kEvents, event_key(commit.session, first));
  if (existing.status().code() != StatusCode::kNotFound) {
    if (!existing.ok()) return existing.status();
    return {StatusCode::kAlreadyExists, "commit: the log has event " + std::to_string(first)};
  }
  for (const LogEvent& event : commit.events) {
    CAIRN_ASSIGN_OR_RETURN(const std::string content, encode(event));
    CAIRN_RETURN_IF_ERROR(
        put_record(Family::kEvents, event_key(commit.session, event.sequence), content, batch));
  }
  return {};
}

Status SessionStore::add_tails(const Commit& commit, TailStore::Changes& changes) {
  if (commit.tail) CAIRN_RETURN_IF_ERROR(changes.put(commit.session, *commit.tail));
  for (const SharedTail& shared : commit.shared_tails) {
    CAIRN_RETURN_IF_ERROR(changes.share(shared.from, {commit.session, shared.slot}).status());
  }
  for (const std::uint64_t slot : commit.expired_tails) changes.remove({commit.session, slot});
  return {};
}

Result<CommitReceipt> SessionStore::commit(const Commit& commit) {
  const std::string subject = subject_of(commit.session);
  CAIRN_RETURN_IF_ERROR(with_subject(subject, check_commit(commit)));
  WriteBatch batch;
  CAIRN_RETURN_IF_ERROR(with_subject(subject, add_events(commit, batch)));
  TailStore::Changes tails(tails_, batch);
  CAIRN_RETURN_IF_ERROR(add_tails(commit, tails));
  if (commit.record) {
    CAIRN_RETURN_IF_ERROR(
        put_record(Family::kSessions, session_key(commit.session), encode(*commit.record), batch));
  }
  BlockStore::Claim claim(blocks_);
  CAIRN_RETURN_IF_ERROR(blocks_.claim_missing(commit.blocks, claim));
  CAIRN_RETURN_IF_ERROR(blocks_.add(commit.kv_namespace, claim, batch));

  CommitReceipt receipt;
  receipt.bytes_written = batch.n_bytes();
  if (commit.durability == Durability::kSynced && !batch.empty()) {
    CAIRN_RETURN_IF_ERROR(counters_.put(*storage_, batch));
  }
  receipt.blocks_written = static_cast<std::int32_t>(claim.blocks().size());
  receipt.blocks_skipped = static_cast<std::int32_t>(commit.blocks.size()) - receipt.blocks_written;
  CAIRN_RETURN_IF_ERROR(with_subject(subject, storage_->write(batch, commit.durability)));
  tails.written();
  counters_.change([&](StoreCounters& counters) {
    counters.bytes_committed += receipt.bytes_written;
    counters.blocks_written += receipt.blocks_written;
    counters.blocks_shared += receipt.blocks_skipped;
  });
  return receipt;
}

Status SessionStore::add_blocks(std::uint32_t kv_namespace, const std::vector<NewBlock>& blocks) {
  WriteBatch batch;
  BlockStore::Claim claim(blocks_);
  CAIRN_RETURN_IF_ERROR(blocks_.claim_missing(blocks, claim));
  CAIRN_RETURN_IF_ERROR(blocks_.add(kv_namespace, claim, batch));
  if (batch.empty()) return {};
  return storage_->write(batch, Durability::kBuffered);
}

Status SessionStore::sync() { return storage_->write(WriteBatch(), Durability::kSynced); }

// -- statistics --

Result<SessionStoreStats> SessionStore::stats() {
  SessionStoreStats stats;
  CAIRN_ASSIGN_OR_RETURN(stats.bytes_on_disk, directory_.bytes_on_disk());
  CAIRN_ASSIGN_OR_RETURN(stats.n_sessions, count_keys(*storage_, Family::kSessions));
  CAIRN_ASSIGN_OR_RETURN(stats.n_blocks, count_keys(*storage_, Family::kBlockIndex));
  CAIRN_ASSIGN_OR_RETURN(stats.n_tails, count_keys(*storage_, Family::kTailIndex));
  return stats;
}

}  // namespace cairn::session
