// Admission by a bound from above. With D = bytes on disk (measured, and what was handed over
// since), F = bytes of the log that are to become tables while the log is still there, and C = the
// largest family of records (compaction may hold it twice), the directory never holds more than
// D + F + C. Records are admitted up to the quota, state up to the quota less a reserve.
#include "session/space.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace cairn::session {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kDefaultQuotaBytes = 20'000'000'000;
// The database's log is cut at 8 MiB (rocksdb_options.cc); a batch may carry it over that.
constexpr std::int64_t kLogBytes = 10 * kMiB;
// Lists of files, messages, LOCK, FORMAT, directories.
constexpr std::int64_t kSmallFileBytes = 2 * kMiB;
// A measurement that did not help is not repeated sooner: it walks thousands of files.
constexpr std::chrono::milliseconds kMeasureInterval{100};

// For the log when state is refused already, and for rewriting tables.
std::int64_t reserve_of(std::int64_t quota_bytes) {
  return std::clamp(quota_bytes / 8, 16 * kMiB, 256 * kMiB);
}

std::int64_t sum_of(const Space::Load& load) { return load.logged + load.bulk; }

}  // namespace

Result<std::int64_t> default_quota(const std::string& directory, std::int64_t bytes_on_disk) {
  struct statvfs disk = {};
  if (statvfs(directory.c_str(), &disk) != 0) {
    return Status(StatusCode::kIoError, "store " + directory + ": free space of its disk: " +
                                            std::generic_category().message(errno));
  }
  const auto n_free = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  return std::max(std::min(kDefaultQuotaBytes, bytes_on_disk + n_free / 10), kQuotaBytesMin);
}

Space::Space(std::string directory, std::int64_t quota_bytes, Measure measure)
    : directory_(std::move(directory)),
      quota_bytes_(quota_bytes),
      reserve_bytes_(reserve_of(quota_bytes)),
      measure_(std::move(measure)) {}

// -- the bound --

std::int64_t Space::on_disk_locked() const { return gauge_.bytes_on_disk + done_ + in_flight_; }

std::int64_t Space::transient_locked() const {
  return std::min(logged_, kLogBytes) + gauge_.rewritable + records_ + kSmallFileBytes;
}

std::int64_t Space::state_limit_locked() const {
  return std::max<std::int64_t>(quota_bytes_ - reserve_bytes_ - transient_locked(), 0);
}

bool Space::fits_locked(const Load& load) const {
  const std::int64_t after = on_disk_locked() + sum_of(load);
  switch (load.kind) {
    case Kind::kState:
      return after <= state_limit_locked();
    case Kind::kRecords:  // twice more: as a table, and in a family that is rewritten
      return after + transient_locked() + 2 * load.logged <= quota_bytes_;
    case Kind::kRemovals:  // small, and the way out
      return true;
  }
  return false;
}

// -- measuring --

Status Space::measure_locked() {
  CAIRN_ASSIGN_OR_RETURN(gauge_, measure_());
  measured_at_ = std::chrono::steady_clock::now();
  done_ = records_ = 0;  // what is in flight may or may not be on disk: it counts until it ended
  return {};
}

Status Space::measure() {
  const std::lock_guard lock(mutex_);
  return measure_locked();
}

Status Space::measure_if_older(std::chrono::steady_clock::duration age) {
  const std::lock_guard lock(mutex_);
  if (std::chrono::steady_clock::now() - measured_at_ < age) return {};
  return measure_locked();
}

// -- admission --

Status Space::enter(const Load& load) {
  const std::lock_guard lock(mutex_);
  bool fits = fits_locked(load);
  if (!fits && std::chrono::steady_clock::now() - measured_at_ >= kMeasureInterval) {
    CAIRN_RETURN_IF_ERROR(measure_locked());
    fits = fits_locked(load);
  }
  const Status status = fits ? Status() : refusal_locked(load);
  if (fits) {
    in_flight_ += sum_of(load);
    logged_ += load.logged;
    if (load.kind != Kind::kRemovals) records_ += load.logged;
  }
  refused_ = refused_ || !fits;
  if (under_pressure_locked() && pressure_) pressure_();
  return status;
}

void Space::leave(const Load& load) {
  const std::lock_guard lock(mutex_);
  in_flight_ -= sum_of(load);
  done_ += sum_of(load);
}

Status Space::refusal_locked(const Load& load) const {
  return {StatusCode::kOutOfDisk,
          "store " + directory_ + ": a write of " + std::to_string(sum_of(load)) +
              " bytes does not fit into the quota of " + std::to_string(quota_bytes_) +
              " bytes: " + std::to_string(on_disk_locked()) + " are on disk and " +
              std::to_string(quota_bytes_ - state_limit_locked()) + " are kept for the log and " +
              "for rewriting tables",
          "raise the quota, or remove sessions"};
}

// -- what the collector asks --

void Space::on_pressure(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  pressure_ = std::move(call);
}

std::int64_t Space::bytes_on_disk() const {
  const std::lock_guard lock(mutex_);
  return on_disk_locked();
}

std::int64_t Space::state_limit() const {
  const std::lock_guard lock(mutex_);
  return state_limit_locked();
}

bool Space::under_pressure_locked() const {
  return refused_ || on_disk_locked() > state_limit_locked() / 100 * 97;
}

bool Space::under_pressure() const {
  const std::lock_guard lock(mutex_);
  return under_pressure_locked();
}

std::int64_t Space::room_to_rewrite() const {
  const std::lock_guard lock(mutex_);
  return std::max<std::int64_t>(quota_bytes_ - on_disk_locked() - transient_locked(), 0);
}

void Space::forget_refused() {
  const std::lock_guard lock(mutex_);
  refused_ = false;
}

}  // namespace cairn::session
