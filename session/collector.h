// Keeps a store within its quota: a thread that collects when the store says that room is short,
// and on request. It also gives the space of replaced tails back.
#ifndef CAIRN_SESSION_COLLECTOR_H_
#define CAIRN_SESSION_COLLECTOR_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "cairn/store.h"
#include "session/collection.h"
#include "session/session_store.h"

namespace cairn::session {

// Safe from any thread. The destructor ends what runs, within one piece of its work.
class Collector {
 public:
  // Borrows the store, which must outlive it.
  explicit Collector(SessionStore& store);
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  ~Collector();

  // Blocks until it is done. Fails with what the storage says.
  Result<CollectReport> collect(const CollectOptions& options);
  // As Collection::remove_session.
  Result<CollectReport> remove_session(const SessionId& id);

  // Of the last collection that the thread made by itself; ok where none failed.
  Status last_error() const;

 private:
  void run();
  void signal();
  bool collect_if_needed();  // false: another try would help as little
  template <class Work>
  Status guarded(const Work& work);
  template <class Work>
  Result<CollectReport> at_once(const Work& work);
  // Waits as long as rewriting so much may take in the background. False: stop.
  bool pause(std::int64_t n_rewritten);

  SessionStore& store_;
  std::mutex collecting_;  // held by who collects
  Collection collection_;  // guarded by collecting_

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stop_ = false, signalled_ = false;
  int n_waiting_ = 0;  // calls that are not to be slowed down
  Status last_error_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_COLLECTOR_H_
