// One budget for the live KV of all sessions of a store: those that were not used for long are put
// to disk and come back when they are used.
#ifndef CAIRN_SESSION_LIVE_MEMORY_H_
#define CAIRN_SESSION_LIVE_MEMORY_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>

#include "session/page_pool.h"

namespace cairn::session {

// What holds live state: a session.
class LiveHolder {
 public:
  // Puts to disk what the store lacks, as far as it takes it, and frees the memory. False if the
  // state is in use. On the strand; throws nothing.
  virtual bool put_away() noexcept = 0;

 protected:
  ~LiveHolder() = default;
};

class LiveMemory {
 public:
  // An eighth of the machine's memory.
  static std::int64_t default_budget();

  // Borrows the pool, whose pages count.
  LiveMemory(std::int64_t budget_bytes, PagePool& pool) : budget_(budget_bytes), pool_(pool) {}

  // Any thread.
  void add(LiveHolder& holder);
  // Waits while the holder is being put away. Not from put_away().
  void remove(LiveHolder& holder);
  // What is live; equal pages count once.
  std::int64_t bytes();

  // On the strand: the holder was used and has so much that is not in the pool. Others are put away
  // while there is more than the budget, least recently used first; the two last used stay, and so
  // does what is in use.
  void used(LiveHolder& holder, std::int64_t private_bytes);

 private:
  struct Entry {
    LiveHolder* holder = nullptr;
    bool live = false;
    bool asked = false;  // to go, in the present round
    std::int64_t private_bytes = 0;
  };
  using Entries = std::list<Entry>;
  // All under mutex_.
  Entries::iterator find(const LiveHolder& holder);
  std::int64_t private_bytes() const;
  Entries::iterator next_to_go();
  void keep_within_budget(std::unique_lock<std::mutex>& lock);

  const std::int64_t budget_;
  PagePool& pool_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Entries entries_;                           // last used first
  const LiveHolder* put_away_now_ = nullptr;  // without mutex_
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_LIVE_MEMORY_H_
