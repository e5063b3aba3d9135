// What happened in a store since it was made, as numbers (StoreCounters). Kept in memory and
// written with synced commits: a crash loses the counts since the last one.
#ifndef CAIRN_SESSION_COUNTERS_H_
#define CAIRN_SESSION_COUNTERS_H_

#include <cstdint>
#include <functional>
#include <mutex>

#include "cairn/session.h"
#include "cairn/store.h"
#include "session/storage.h"

namespace cairn::session {

// Safe from any thread.
class Counters {
 public:
  // Goes on from what the store has; from 0 where that cannot be read. Fails where reading does.
  Status load(Storage& storage);

  // `change` runs under the counters' lock: it must be short.
  void change(const std::function<void(StoreCounters&)>& change);
  // A turn that ended or was interrupted.
  void add_turn(const TurnUsage& usage);

  // As of now. bytes_written is what `storage` has written, this time and before.
  StoreCounters get(const Storage& storage) const;
  // Adds them to the batch.
  Status put(const Storage& storage, WriteBatch& batch) const;

 private:
  mutable std::mutex mutex_;
  StoreCounters counters_;  // bytes_written: before this storage was opened
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_COUNTERS_H_
