// The quota of a store: how many bytes its directory takes, what may still be written, when room
// must be made.
//
// The measure is physical (allocated blocks of every file), since sums of what was written drift
// from what a database makes of it. Between two measurements everything handed over is added. On
// top of that comes what the database may need beside it for a while: tables that repeat the log,
// and a rewritten family of records beside the old one.
#ifndef CAIRN_SESSION_SPACE_H_
#define CAIRN_SESSION_SPACE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "cairn/status.h"

namespace cairn::session {

inline constexpr std::int64_t kQuotaBytesMin = std::int64_t{64} << 20;

// The quota of a store whose owner named none (StoreOptions::quota_bytes): of what the directory
// takes now and what its disk has free. Fails with kIoError.
Result<std::int64_t> default_quota(const std::string& directory, std::int64_t bytes_on_disk);

// Safe from any thread.
class Space {
 public:
  struct Gauge {
    std::int64_t bytes_on_disk = 0;  // of the directory
    std::int64_t rewritable = 0;     // most bytes that the database rewrites by itself at one time
  };
  using Measure = std::function<Result<Gauge>()>;

  // `measure` may be called by any thread; it must not call back.
  Space(std::string directory, std::int64_t quota_bytes, Measure measure);

  // The first measurement; to be made again after files were removed.
  Status measure();
  // Measures if the last time is longer ago than `age`.
  Status measure_if_older(std::chrono::steady_clock::duration age);

  // What a write puts on disk. State (blocks, tails) stops well before the quota, so that the log
  // can go on and the collector has room to rewrite tables; removals never stop.
  enum class Kind { kState, kRecords, kRemovals };
  struct Load {
    Kind kind = Kind::kRecords;
    std::int64_t logged = 0;  // bytes that go through the database's log
    std::int64_t bulk = 0;    // bytes that become tables at once
  };
  // kOutOfDisk with the numbers where it may not be written. Otherwise counts it: call leave() when
  // the write has ended, however it did.
  Status enter(const Load& load);
  void leave(const Load& load);

  // Called when something was refused or is about to be, by the writing thread. It must be short
  // and not call back. When this returns, the one before is not called any more.
  void on_pressure(std::function<void()> call);

  std::int64_t quota() const { return quota_bytes_; }
  std::int64_t bytes_on_disk() const;  // estimate, from above
  // State is refused above this, and collected down to the second where the first is near.
  std::int64_t state_limit() const;
  std::int64_t low_mark() const { return state_limit() / 10 * 9; }
  bool under_pressure() const;
  // What the rewriting of tables may take for a while.
  std::int64_t room_to_rewrite() const;
  // A collection begins: pressure is judged anew by what is on disk, and by what is refused.
  void forget_refused();

 private:
  std::int64_t on_disk_locked() const;
  std::int64_t transient_locked() const;  // what the database may take besides, for a while
  std::int64_t state_limit_locked() const;
  bool under_pressure_locked() const;
  bool fits_locked(const Load& load) const;
  Status measure_locked();
  Status refusal_locked(const Load& load) const;

  const std::string directory_;
  const std::int64_t quota_bytes_, reserve_bytes_;
  const Measure measure_;

  mutable std::mutex mutex_;  // guards what follows
  std::function<void()> pressure_;
  Gauge gauge_;
  std::chrono::steady_clock::time_point measured_at_{};
  std::int64_t in_flight_ = 0;  // of writes that have not ended
  std::int64_t done_ = 0;       // of writes that ended since the last measurement
  std::int64_t logged_ = 0;     // since the store was opened
  std::int64_t records_ = 0;    // logged since the last measurement
  bool refused_ = false;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SPACE_H_
