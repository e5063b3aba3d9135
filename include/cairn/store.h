// Store: one directory that keeps agent sessions. StoreReader: the same directory seen from
// outside, while another process may own it.
//
// Threads: both are safe from any thread. Every call may block on the disk.
#ifndef CAIRN_STORE_H_
#define CAIRN_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cairn/engine.h"
#include "cairn/status.h"

namespace cairn {

namespace session {
class StoreReaderState;
class StoreState;
}  // namespace session

// The secret of an encrypted store (SECURITY.md). Give either; both empty = a store without
// encryption.
struct StoreSecret {
  std::string passphrase = {};  // stretched with scrypt
  // Fills in the 32 bytes of the key, for hosts with a key store of their own. Called once by open,
  // on its thread; its error is returned by open.
  std::function<Status(std::array<std::uint8_t, 32>& key)> key = {};

  bool empty() const { return passphrase.empty() && !key; }
};

struct StoreOptions {
  bool create_if_missing = true;
  // Most bytes the directory may take on disk; at least 64 MiB. 0 = the smaller of 20 GB and what
  // it takes now plus 10 % of the free space.
  std::int64_t quota_bytes = 0;
  // Memory for the live KV of all sessions of this store; sessions above it are put to disk and
  // come back when they are used. At least the two last used stay. 0 = an eighth of the machine's.
  std::int64_t live_bytes = 0;
  // Locks and syncs of NFS, SMB and the like are not to be trusted: such directories are refused.
  bool allow_network_file_system = false;
  // Encrypts a store that is created; opens one that was created so. kInvalidArgument where the
  // store is encrypted and the secret is missing or wrong, or the other way round.
  StoreSecret secret = {};
};

struct SessionInfo {
  std::string id;    // 32 hex digits
  std::string name;  // unique in the store
  std::string model_fingerprint;
  std::int64_t created_ms = 0, used_ms = 0;  // Unix time
  std::int64_t n_events = 0;                 // entries of its own log
  std::int64_t n_tokens = 0;                 // tokens of the head, as of the last commit
  bool turn_open = false;                    // the last turn was interrupted
  std::string forked_from;                   // id of the session it was forked from; may be empty
  std::map<std::string, std::string> labels;
};

enum class MissCause : std::int32_t {
  kNone = 0,           // everything known was reused
  kNewTokens = 1,      // the rest of the prompt was never computed
  kPromptChanged = 2,  // the prompt differs from the stored one, in a way that has no name here
  kNotStored = 3,      // a prefix was computed once but never reached the store
  kCorrupt = 4,        // a stored block or tail failed its check and was dropped
  kReplayNeeded = 5,   // tokens were restored, their window state had to be recomputed
  kEvicted = 6,        // a stored prefix was collected to keep the quota
  kOtherModel = 7,     // the stored state is of the model that the session had before
  // The prompt differs from the stored one before its end, and this is why:
  kSystemChanged = 8,      // text or response format of a system message
  kToolsChanged = 9,       // the list of tools, or one of them
  kMessageEdited = 10,     // a message that was there before says something else
  kAnswerRewritten = 11,   // an assistant message came back in other words or tokens
  kReasoningDropped = 12,  // the format no longer shows the reasoning of an earlier answer
  kModeChanged = 13,       // thinking or effort, which the prompt begins with
  kHeadMoved = 14,         // the session went back, and state is stored for other places only
};
inline constexpr int kMissCauseCount = 15;

// Since the store was made unless said otherwise. Numbers of tokens, bytes, times something
// happened.
struct StoreCounters {
  std::int64_t turns = 0;
  std::int64_t tokens_from_memory = 0, tokens_from_disk = 0, tokens_replayed = 0;
  std::int64_t tokens_prefilled = 0, tokens_generated = 0;
  std::array<std::int64_t, kMissCauseCount> misses{};  // turns by the cause of their reuse report
  std::int64_t bytes_committed = 0;                    // keys and values handed to the database
  std::int64_t bytes_written = 0;                      // by the database: log, tables, compaction
  std::int64_t blocks_written = 0, blocks_shared = 0;  // shared: already there
  std::int64_t blocks_evicted = 0, tails_evicted = 0, blocks_corrupt = 0, tails_corrupt = 0;
  std::int64_t commits_without_state = 0;  // the quota or the disk had no room for blocks
};

// What open found. A store never goes back silently.
struct StoreRecovery {
  // The database is older than what was acknowledged: somebody put an older copy in its place, or
  // the disk destroyed synced bytes.
  bool rolled_back = false;
  std::int64_t commits_lost = 0;  // as far as known
  std::string detail;             // one sentence for a person; empty where nothing happened
};

struct StoreStats {
  std::int64_t bytes_on_disk = 0;  // allocated blocks of every file of the store
  std::int64_t quota_bytes = 0;
  std::int64_t bytes_live = 0;  // of live KV in memory; equal blocks of two sessions count once
  std::int64_t n_sessions = 0, n_blocks = 0, n_tails = 0;
  StoreCounters counters;
  StoreRecovery recovery;
};

struct CollectOptions {
  std::int64_t target_bytes = 0;  // evict until the directory takes at most this; 0 = the quota
  bool branches = false;          // also remove rewound branches without a mark, however young
};
struct CollectReport {
  std::int64_t bytes_before = 0, bytes_after = 0;  // on disk
  std::int64_t blocks_removed = 0, tails_removed = 0, events_removed = 0;
};

// One directory, one owner process. Keeps its runtime alive.
class Store {
 public:
  // Fails with kBusy (message has the owner's pid), kCorrupt, kUnsupported (made by a newer
  // version, or a network file system), kNotFound (missing and not to be created),
  // kInvalidArgument (options, secret), kOutOfDisk, kIoError.
  static Result<Store> open(const Runtime& runtime, const std::string& directory,
                            const StoreOptions& options = {});

  // Works without a model. Newest use first.
  Result<std::vector<SessionInfo>> list() const;
  Result<StoreStats> stats() const;
  StoreRecovery recovery() const;

  // Removes a session: its text, its tails, and the blocks that no other session reaches. The bytes
  // are out of the files when the call returns, but for text that forks of it still show (theirs,
  // until they are removed). Blocks. Fails with kNotFound, kBusy while it is open.
  Status remove(const std::string& name);
  // Fails with kNotFound, kAlreadyExists, kInvalidArgument, kBusy while the session runs a turn.
  Status rename(const std::string& name, const std::string& new_name);
  // Replaces the labels: at most 32, keys of 1..64 bytes, values of at most 1024, UTF-8. Fails like
  // rename.
  Status set_labels(const std::string& name, const std::map<std::string, std::string>& labels);

  // Frees what nobody needs, then evicts down to the target. Runs by itself when the quota is near;
  // a call waits for it. Sessions go on meanwhile.
  Result<CollectReport> collect(const CollectOptions& options = {});

  // Makes a session of a file that StoreReader::export_session wrote. `name`: empty = as it was.
  // Fails with kAlreadyExists, kCorrupt, kUnsupported, kOutOfDisk, kIoError; then nothing is there.
  Result<SessionInfo> import_session(const std::string& file, const std::string& name = "");

  const std::shared_ptr<session::StoreState>& state() const { return state_; }

 private:
  explicit Store(std::shared_ptr<session::StoreState> state) : state_(std::move(state)) {}
  std::shared_ptr<session::StoreState> state_;
};

// --- Seen from outside.

// A node of a session's tree, in the order of writing.
struct SessionEvent {
  std::uint64_t id = 0, parent = 0;  // parent 0 = none
  std::int64_t time_ms = 0;
  std::string kind;           // "message", "turn started", "tokens", "turn ended", "mark", ...
  std::string summary;        // one line for a person
  std::int64_t n_tokens = 0;  // of this event
  bool on_path = false;       // from the root to the head
};
struct SessionTree {
  SessionInfo info;
  std::vector<SessionEvent> events;
  std::uint64_t head = 0;
  std::uint64_t forked_at = 0;  // events up to this one are shared with the origin; 0 = none
  std::int64_t n_blocks = 0,
               n_blocks_shared = 0;  // of the head's chain; shared with other sessions
  std::int64_t bytes_blocks = 0, bytes_tails = 0, bytes_log = 0;
  std::int64_t tail_position = -1;  // tokens before the stored exact state; -1 = none
};

struct VerifyReport {
  std::int64_t n_sessions = 0, n_events = 0, n_blocks = 0, n_tails = 0;
  std::int64_t bytes_checked = 0;
  std::vector<std::string> problems;  // damage: what, where, what it costs
  std::vector<std::string> notes;     // no damage: garbage that the next collection removes, ...
};

// A consistent view as of its opening. Takes no lock and changes nothing in the directory, so an
// owner may be at work meanwhile.
class StoreReader {
 public:
  // Fails with kNotFound, kUnsupported, kCorrupt, kInvalidArgument (secret), kIoError.
  static Result<StoreReader> open(const std::string& directory, const StoreSecret& secret = {});

  // Who had the store open then, for people: "pid 1234". Empty = nobody.
  std::string owner() const;

  Result<std::vector<SessionInfo>> list() const;
  Result<SessionTree> show(const std::string& name) const;
  Result<StoreStats> stats() const;
  // Reads every value: checksums, chains, tokens, tree, reachability, by code that shares nothing
  // with the one that wrote but the format.
  Result<VerifyReport> verify() const;
  // Writes one session, its state included, as a file for Store::import_session. The file is not
  // encrypted. Fails with kNotFound, kAlreadyExists (the file), kOutOfDisk, kIoError.
  Status export_session(const std::string& name, const std::string& file) const;

 private:
  explicit StoreReader(std::shared_ptr<session::StoreReaderState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<session::StoreReaderState> state_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_H_
