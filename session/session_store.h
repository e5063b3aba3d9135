// The durable store under sessions, as typed operations: sessions and their logs, KV blocks shared
// by key, tails. What is in a payload is not known here. DESIGN.md has the reasons, FORMAT.md the
// bytes.
#ifndef CAIRN_SESSION_SESSION_STORE_H_
#define CAIRN_SESSION_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "cairn/store.h"
#include "session/block_key.h"
#include "session/block_store.h"
#include "session/counters.h"
#include "session/log_tree.h"
#include "session/marked_storage.h"
#include "session/open_sessions.h"
#include "session/records.h"
#include "session/session_id.h"
#include "session/session_log.h"
#include "session/space.h"
#include "session/storage.h"
#include "session/store_directory.h"
#include "session/store_keys.h"
#include "session/tail_store.h"

namespace cairn::session {

// A commit is copied once into the log buffer: a writer of much splits it.
inline constexpr std::int64_t kCommitBytesMax = 256 << 20;
inline constexpr std::size_t kSessionNameBytesMax = 200;
inline constexpr std::size_t kLabelsMax = 32, kLabelKeyBytesMax = 64, kLabelValueBytesMax = 1024;

struct NewSession {
  std::string name = {};  // 1..200 bytes of UTF-8 without control characters
  std::string model_fingerprint = {};
  SessionOptions options = {};
  std::uint32_t kv_namespace = 0;
};

// Lets a slot of the commit's session name the tail that is in another slot, of any session. Where
// none is there, nothing happens: a tail is a cache.
struct SharedTail {
  TailSlot from;
  std::uint64_t slot = kHeadTail;
};

// What one commit writes, all of it at one instant or nothing.
struct Commit {
  SessionId session = {};
  std::vector<LogEvent> events = {};  // ascending sequences that the log does not have
  std::uint32_t kv_namespace = 0;     // of the blocks
  std::vector<NewBlock> blocks = {};  // those already stored are skipped: the first writer wins
  std::optional<NewTail> tail = {};   // replaces the one in its slot
  std::vector<SharedTail> shared_tails = {};      // after `tail`
  std::vector<std::uint64_t> expired_tails = {};  // slots that are emptied
  std::optional<SessionRecord> record = {};  // replaces the session's; its name does not change
  Durability durability = Durability::kSynced;
};

struct CommitReceipt {
  std::int64_t bytes_written = 0;  // keys and values handed to the storage
  std::int32_t blocks_written = 0, blocks_skipped = 0;
};

struct SessionStoreStats {
  std::int64_t bytes_on_disk = 0;  // allocated blocks of every file
  std::int64_t n_sessions = 0, n_blocks = 0, n_tails = 0;
};

// A session that begins as `origin` is at event `sequence`, and goes on with `events` (maybe none)
// to where the head is `head`.
struct NewFork {
  std::string name = {};
  SessionRecord origin = {};
  std::uint64_t sequence = 0;
  HeadState head = {};
  std::vector<LogEvent> events = {};
  // Tails that are the fork's too, the newest first, which is its head's.
  std::vector<TailRecord> tails = {};
};

struct EncodedEvent {
  std::uint64_t sequence = 0;
  std::string content;
};

// A session that another store held: what is put under its new id.
struct AdoptedSession {
  SessionRecord record = {};  // the id is given, the name may be taken
  std::vector<EncodedEvent> events = {};
  std::vector<NewTail> tails = {};
};

// Says that a session is open in this process; given back by destruction. May outlive the store.
class SessionLease {
 public:
  SessionLease() = default;
  SessionLease(SessionLease&&) noexcept = default;
  SessionLease& operator=(SessionLease&& other) noexcept;
  ~SessionLease();

  // The session's record, which others may change while its mutex is free (rename, labels).
  const std::shared_ptr<OpenSession>& session() const { return session_; }

 private:
  friend class SessionStore;
  SessionLease(std::shared_ptr<OpenSessions> open, const SessionId& id,
               std::shared_ptr<OpenSession> session);

  std::shared_ptr<OpenSessions> open_;  // shared: leases of handles that the host still holds
  SessionId id_;
  std::shared_ptr<OpenSession> session_;
};

// Safe from any thread; every call may block on the disk. A damaged log or record is kCorrupt for
// ever; blocks and tails are a cache: a damaged one is kCorrupt once and kNotFound from then on.
// On a nearly full disk large writes are refused before small ones (kOutOfDisk, nothing changed):
// the log goes on without blocks for a while. After a write failed in the database (kIoError,
// kOutOfDisk, ...) all further writes fail and reads go on; what was acknowledged is there after
// the store is opened again.
class SessionStore {
 public:
  // Takes the directory for this process and opens its database. Fails like StoreDirectory::open,
  // kCorrupt besides.
  // kInvalidArgument for a secret that is not the store's.
  static Result<std::unique_ptr<SessionStore>> open(const std::string& path,
                                                    const StoreOptions& options = {});
  // The same on a storage of the caller's, which is the database of `directory`.
  static Result<std::unique_ptr<SessionStore>> open_on(StoreDirectory directory,
                                                       std::unique_ptr<Storage> storage,
                                                       const StoreOptions& options = {});

  ~SessionStore();

  const StoreHeader& header() const { return header_; }
  // What this open found.
  const StoreRecovery& recovery() const { return recovery_; }
  // What the salt of every KvNamespace begins with: in an encrypted store 32 secret bytes, so that
  // block keys on disk do not tell who tries prompts; empty otherwise.
  const std::string& kv_salt() const { return kv_salt_; }

  // -- sessions --

  // Makes the session durable under its name. Fails with kInvalidArgument (name), kAlreadyExists.
  Result<SessionRecord> create_session(const NewSession& session);
  // The same for a fork, which is as durable as its origin's commits. The origin is leased or
  // cannot be removed meanwhile for another reason.
  Result<SessionRecord> fork_session(const NewFork& fork);
  // The same for all of a session at one instant. Fails with kOutOfDisk besides.
  Result<SessionRecord> adopt_session(AdoptedSession session);
  // kNotFound where there is none. Finds removed sessions too.
  Result<SessionRecord> load_session(const SessionId& id);
  Result<SessionRecord> find_by_name(std::string_view name);
  // Newest use first, equal times by name.
  Result<std::vector<SessionRecord>> list();
  // Removes log, tails, record and name; its blocks stay until they are collected. Events that
  // forks of it show stay with a record that is `removed`, until the last of the forks is removed.
  // Fails with kNotFound, kBusy while the session is leased.
  Status remove_session(const SessionId& id);
  // Removes the events that neither the head, nor a mark, nor a fork, nor a branch left at or after
  // `left_before_ms` leads through. Returns their number. Fails like rename_session.
  Result<std::int64_t> remove_branches(const SessionId& id, std::int64_t left_before_ms);
  // Of any session, also one that is leased, but for one that runs a turn (kBusy). Fail with
  // kNotFound, kInvalidArgument, kAlreadyExists.
  Status rename_session(const SessionId& id, const std::string& new_name);
  Status set_labels(const SessionId& id, const std::map<std::string, std::string>& labels);
  // At most one lease of a session exists: kBusy otherwise. kNotFound where there is no session.
  Result<SessionLease> lease(const SessionId& id);

  // -- log --

  // The events from `first` on, ascending: one range scan. kCorrupt if one is damaged, kUnsupported
  // if one is of a kind that must be known and is not.
  Result<std::vector<LogEvent>> read_events(const SessionId& id, std::uint64_t first = 1);
  // kNotFound where there is none.
  Result<LogEvent> read_event(const SessionId& id, std::uint64_t sequence);
  // The log of the session as its tree is read, through the origins of a fork.
  Result<SessionLog> log(const SessionRecord& record);
  // The session's own log as a tree.
  Result<LogTree> log_tree(const SessionRecord& record);
  // The events from `first` on one by one; `visit` returns false to stop.
  Status visit_events(const SessionId& id, std::uint64_t first,
                      const std::function<bool(LogEvent&&)>& visit);

  // -- commits --

  // Atomic; durable as the commit says. Commits of one session are not to overlap; of different
  // sessions they may, and then share the sync of the disk. Fails with kInvalidArgument (sequences,
  // sizes), kNotFound (no such session), kAlreadyExists (the log has the first sequence),
  // kOutOfDisk, kIoError.
  Result<CommitReceipt> commit(const Commit& commit);
  // Stores blocks that no session names yet: hold them (BlockStore::Hold) until one does.
  Status add_blocks(std::uint32_t kv_namespace, const std::vector<NewBlock>& blocks);
  // Makes every earlier commit durable.
  Status sync();

  // -- KV blocks --

  BlockStore& blocks() { return blocks_; }
  Result<std::uint32_t> open_namespace(const KvNamespace& kv_namespace) {
    return blocks_.open_namespace(kv_namespace);
  }
  // As BlockStore's get, has and stored_prefix.
  Result<Block> get_block(const BlockKey& key, std::span<const TokenId> tokens) {
    return blocks_.get(key, tokens);
  }
  Result<bool> has_block(const BlockKey& key) { return blocks_.has(key); }
  Result<std::size_t> stored_prefix(std::span<const BlockKey> chain) {
    return blocks_.stored_prefix(chain);
  }

  // -- tails --

  TailStore& tails() { return tails_; }
  // As TailStore's get, find, find_all and drop.
  Result<Tail> get_tail(const SessionId& id, std::uint64_t slot = kHeadTail) {
    return tails_.get({id, slot});
  }
  Result<TailRecord> find_tail(const SessionId& id, std::uint64_t slot = kHeadTail) {
    return tails_.find({id, slot});
  }
  Result<FoundTails> find_tails(const SessionId& id) { return tails_.find_all(id); }
  Status drop_tail(const SessionId& id, std::uint64_t slot = kHeadTail) {
    return tails_.drop({id, slot});
  }

  // -- space --

  Space& space() { return space_; }
  Counters& counters() { return counters_; }
  StoreCounters read_counters() const { return counters_.get(*storage_); }
  // Of the sessions that are leased.
  std::set<SessionId> open_sessions() const { return open_sessions_->ids(); }
  // For those who keep the store in order; lives as long as the store.
  Storage& storage() { return *storage_; }

  // Walks keys and files: milliseconds for 10^5 blocks.
  Result<SessionStoreStats> stats();

 private:
  SessionStore(StoreDirectory directory, StoreHeader header, std::string kv_salt,
               std::unique_ptr<Storage> storage, std::int64_t quota_bytes);
  static Result<std::unique_ptr<SessionStore>> open_on(StoreDirectory directory,
                                                       MarkedStorage database,
                                                       const StoreOptions& options,
                                                       StoreLock& lock);
  Result<Space::Gauge> measure_space() const;
  Status migrate();
  Status write_header();
  void note_recovery(StoreRecovery recovery);

  // Writes the record of a session that is made, its name and what is in `batch`.
  Status add_session(const SessionRecord& record, WriteBatch& batch, Durability durability);
  // Changes the record of a session, open or not, while nobody else does. `change` also puts what
  // belongs to it into the batch.
  using RecordChange = std::function<Status(SessionRecord& record, WriteBatch& batch)>;
  Status change_record(const SessionId& id, const RecordChange& change);
  // Adds the removal of what no fork needs of a session that is gone for its owner. `sessions` are
  // all there are, this one too.
  Status add_removal(SessionRecord record, std::vector<SessionRecord> sessions, WriteBatch& batch,
                     TailStore::Changes& tails);
  Status check_commit(const Commit& commit);
  Status add_events(const Commit& commit, WriteBatch& batch);
  Status add_tails(const Commit& commit, TailStore::Changes& changes);

  StoreDirectory directory_;  // before storage_: the lock outlives the database
  Space space_;
  std::unique_ptr<Storage> storage_;
  Counters counters_;
  bool counting_ = false;  // counters_ are the store's
  BlockStore blocks_;
  TailStore tails_;
  StoreHeader header_;
  StoreRecovery recovery_;
  std::string kv_salt_;
  std::shared_ptr<OpenSessions> open_sessions_;

  std::mutex names_mutex_;  // held while records come, go or change names; after OpenSession::mutex
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_STORE_H_
