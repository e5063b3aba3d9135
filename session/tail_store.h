// Tails in the store: the state of a session that is not in blocks (FORMAT.md section 7). A tail is
// found by session and slot through a small index, and kept under an ascending number, so that it
// can be written past the log and shared: several slots may name one number. Its bytes go when no
// slot names it any more.
#ifndef CAIRN_SESSION_TAIL_STORE_H_
#define CAIRN_SESSION_TAIL_STORE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "session/block_key.h"
#include "session/counters.h"
#include "session/records.h"
#include "session/session_id.h"
#include "session/storage.h"

namespace cairn::session {

// The tail of the session's head. Other slots are the sequences of events, which begin at 1.
inline constexpr std::uint64_t kHeadTail = 0;

struct TailSlot {
  SessionId session;
  std::uint64_t slot = kHeadTail;

  auto operator<=>(const TailSlot&) const = default;
};

struct NewTail {
  std::uint64_t slot = kHeadTail;
  std::int64_t position = 0;   // tokens before it
  BlockKey chain_key{};        // of the last whole block before it
  std::uint64_t sequence = 0;  // the event the session stands at
  std::span<const std::byte> payload = {};
};

struct Tail {
  TailRecord record;  // as the index has it
  std::string value;  // as stored; owns the payload
  std::size_t payload_at = 0;

  std::span<const std::byte> payload() const {
    return std::as_bytes(std::span(value)).subspan(payload_at);
  }
};

// The tails that a session has.
struct FoundTails {
  std::vector<TailRecord> tails;
  std::int64_t n_corrupt = 0;  // entries of the index that did not check; they are dropped
};

// Safe from any thread. A cache, like BlockStore: a tail that does not check is dropped, reported
// as kCorrupt once, and kNotFound from then on.
class TailStore {
 public:
  // Borrows both. What was damaged is counted.
  TailStore(Storage& storage, Counters& counters) : storage_(storage), counters_(counters) {}
  // Reads the index. Before anything else.
  Status load();

  // What is in the slot, without reading it. kNotFound where nothing is.
  Result<TailRecord> find(const TailSlot& slot);
  // All of the session, in the order of their slots.
  Result<FoundTails> find_all(const SessionId& session);
  Result<Tail> get(const TailSlot& slot);
  // Empties the slot. Not an error if it is empty.
  Status drop(const TailSlot& slot);
  // Every slot in use, by session and slot; `visit` returns false to stop.
  Status visit(const std::function<bool(const TailRecord&)>& visit);

  class Changes;

  // Gives the disk space of removed tails back. For idle times; cheap where there are none.
  Status reclaim();
  // The same where it is worth it.
  Status reclaim_if_many();
  // Called when it is, by the thread that removed something: reclaiming takes a sync and some
  // milliseconds for each table, which a commit need not wait for. It must be short and not call
  // back. Without it, the thread reclaims. When this returns, the one before is not called any
  // more.
  void on_many_removed(std::function<void()> call);

 private:
  // A tail by its number; 0 = none.
  struct Named {
    std::uint64_t number = 0, payload_bytes = 0;
  };

  Result<Tail> read(const TailSlot& slot);
  Result<std::uint64_t> take_number();
  // Both with the mutex held.
  void release(const Named& tail) noexcept;
  void buried(const Named& tail) noexcept;

  Storage& storage_;
  Counters& counters_;
  std::mutex mutex_;  // guards what follows
  // One that a change has emptied stays, with the number 0, until the change is written.
  std::map<TailSlot, Named> slots_;
  // How often a number is named, by slots and by changes that are not over.
  std::map<std::uint64_t, std::int64_t> uses_;
  std::vector<Named> dead_;             // named no more, their bytes not yet removed
  std::vector<std::uint64_t> removed_;  // their bytes still take disk space
  std::uint64_t removed_bytes_ = 0;
  std::function<void()> many_removed_;
  std::uint64_t next_ = 1, reserved_ = 1;
};

// What one batch does to tails. Its methods add to the batch; call written() once the batch is in
// the storage. Destroyed without it, the slots stay as they were. Confined to one thread.
class TailStore::Changes {
 public:
  // Borrows both.
  Changes(TailStore& store, WriteBatch& batch) : store_(store), batch_(batch) {}
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;
  ~Changes();

  // Replaces what is in the slot. The payload is borrowed until the batch is written.
  Status put(const SessionId& session, const NewTail& tail);
  // Lets `to` name the tail that `from` names, what was put there by these changes included. False,
  // and nothing changed, where that is empty.
  Result<bool> share(const TailSlot& from, const TailSlot& to);
  void remove(const TailSlot& slot);
  Status remove_all(const SessionId& session);
  void written();

 private:
  struct Renamed {
    TailSlot slot;
    Named before, after;
  };
  Status name_held(const TailRecord& record);
  void set(const TailSlot& slot, const Named& after);
  void bury(const Named& tail);

  TailStore& store_;
  WriteBatch& batch_;
  std::vector<TailRecord> put_;
  std::vector<Renamed> renamed_;
  std::vector<Named> buried_;  // their bytes are removed by the batch
  bool written_ = false;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TAIL_STORE_H_
