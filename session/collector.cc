// The thread sleeps until the store's Space or its tails signal, or a minute has passed. Errors
// stay here: a store that cannot be collected goes on, and refuses state when its quota is used up.
#include "session/collector.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

namespace cairn::session {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes kIdleInterval{1};
// Sums drift from what is on disk.
constexpr std::chrono::minutes kMeasureInterval{10};
// A collection that could not help is not tried again sooner.
constexpr std::chrono::milliseconds kRetryInterval{250};
constexpr std::int64_t kRewriteBytesPerSecond = 20'000'000;

}  // namespace

Collector::Collector(SessionStore& store)
    : store_(store),
      collection_(store, [this](std::int64_t n_rewritten) { return pause(n_rewritten); }),
      thread_([this] { run(); }) {
  store_.space().on_pressure([this] { signal(); });
  store_.tails().on_many_removed([this] { signal(); });
}

Collector::~Collector() {
  store_.space().on_pressure({});
  store_.tails().on_many_removed({});
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Collector::signal() {
  const std::lock_guard lock(mutex_);
  signalled_ = true;
  changed_.notify_all();
}

void Collector::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_for(lock, kIdleInterval, [&] { return stop_ || signalled_; });
    if (stop_) return;
    signalled_ = false;
    lock.unlock();
    const bool helped = collect_if_needed();
    lock.lock();
    if (!helped) changed_.wait_for(lock, kRetryInterval, [&] { return stop_; });
  }
}

// What runs in here must not throw into a thread or a host.
template <class Work>
Status Collector::guarded(const Work& work) {
  try {
    const std::lock_guard lock(collecting_);
    return work();
  } catch (const std::bad_alloc&) {
    return {StatusCode::kOutOfMemory, "collection: out of memory",
            "free memory, or raise the quota"};
  } catch (const std::exception& e) {
    return internal_error(std::string("collection: ") + e.what());
  }
}

bool Collector::collect_if_needed() {
  bool helped = true;
  const Status status = guarded([&]() -> Status {
    Space& space = store_.space();
    CAIRN_RETURN_IF_ERROR(store_.tails().reclaim_if_many());
    CAIRN_RETURN_IF_ERROR(space.measure_if_older(kMeasureInterval));
    if (!space.under_pressure()) return {};
    space.forget_refused();
    CAIRN_ASSIGN_OR_RETURN(const CollectReport report, collection_.make_room(space.low_mark()));
    helped = report.bytes_after < report.bytes_before;
    return {};
  });
  const std::lock_guard lock(mutex_);
  last_error_ = status;
  return helped && status.ok();
}

bool Collector::pause(std::int64_t n_rewritten) {
  const bool pressed = store_.space().under_pressure();
  std::unique_lock lock(mutex_);
  const bool hurry = pressed || n_waiting_ > 0;
  const std::chrono::milliseconds time(hurry ? 0 : n_rewritten * 1000 / kRewriteBytesPerSecond);
  changed_.wait_for(lock, time, [&] { return stop_ || n_waiting_ > 0; });
  return !stop_;
}

template <class Work>
Result<CollectReport> Collector::at_once(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    ++n_waiting_;
    changed_.notify_all();
  }
  CollectReport report;
  const Status status = guarded([&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(report, work());
    return {};
  });
  const std::lock_guard lock(mutex_);
  --n_waiting_;
  if (!status.ok()) return status;
  return report;
}

Result<CollectReport> Collector::collect(const CollectOptions& options) {
  if (options.target_bytes < 0) {
    return invalid_argument("collect: target_bytes is " + std::to_string(options.target_bytes) +
                            ", must not be negative");
  }
  return at_once([&]() -> Result<CollectReport> {
    std::int64_t n_events = 0;
    if (options.branches) {
      CAIRN_ASSIGN_OR_RETURN(n_events, collection_.remove_branches());
    }
    std::int64_t target = options.target_bytes;
    if (target == 0) {
      target = store_.space().under_pressure() ? store_.space().low_mark() : store_.space().quota();
    }
    CAIRN_ASSIGN_OR_RETURN(CollectReport report, collection_.make_room(target));
    report.events_removed = n_events;
    return report;
  });
}

Result<CollectReport> Collector::remove_session(const SessionId& id) {
  return at_once([&] { return collection_.remove_session(id); });
}

Status Collector::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace cairn::session
