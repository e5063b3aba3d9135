// A call is a number that changes and a wait until a count is zero. Both are written by
// read-modify-write operations of full order: std::atomic::notify looks for sleepers after the
// write, and a plain store could pass that look.
#include "kernels/context.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <system_error>
#include <utility>

namespace cairn::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than the serial parts between the operations of a step (microseconds), shorter than what a
// host would notice. Waking a sleeper takes 5 to 50 us (kernels/DESIGN.md "Threads").
constexpr std::chrono::microseconds kWatch(50);
constexpr int kLooksPerClock = 32;

void wait_a_moment() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The value when it is not `old` any more.
std::uint32_t changed_from(std::uint32_t old, const std::atomic<std::uint32_t>& value,
                           bool may_watch) {
  Clock::time_point start;
  for (int look = 0; may_watch; ++look) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    if (look % kLooksPerClock == 0) {
      const Clock::time_point time = Clock::now();
      if (look == 0) start = time;
      if (time - start > kWatch) break;
    }
    wait_a_moment();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

void pin_thread(std::thread& thread, std::int32_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int error = EINVAL;
  if (cpu >= 0 && cpu < CPU_SETSIZE) {
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    error = pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  }
  if (error != 0) {
    throw std::system_error(error, std::generic_category(),
                            "cannot run a thread on CPU " + std::to_string(cpu));
  }
}

Context::Context(int n_threads, std::span<const std::int32_t> cpus)
    : may_watch_(static_cast<unsigned>(n_threads) <= std::thread::hardware_concurrency()),
      workers_(static_cast<std::size_t>(std::max(1, n_threads)) - 1) {
  try {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      worker.thread = std::thread([this, &worker, i] { work(worker, static_cast<int>(i) + 1); });
      if (!cpus.empty()) pin_thread(worker.thread, cpus[(i + 1) % cpus.size()]);
    }
  } catch (...) {
    stop();  // a running thread must not be destroyed
    throw;
  }
}

Context::~Context() { stop(); }

void Context::stop() noexcept {
  stop_ = true;
  for (Worker& worker : workers_) {
    if (!worker.thread.joinable()) continue;
    worker.n_calls.fetch_add(1);
    worker.n_calls.notify_one();
    worker.thread.join();
  }
}

void Context::run_share(int share) noexcept {
  const std::int64_t begin = task_.n * share / task_.n_shares;
  const std::int64_t end = task_.n * (share + 1) / task_.n_shares;
  try {
    task_.call(task_.body, begin, end);
  } catch (...) {
    if (!has_failed_.exchange(true)) failure_ = std::current_exception();
  }
}

void Context::work(Worker& self, int share) {
  for (std::uint32_t seen = 0;;) {
    seen = changed_from(seen, self.n_calls, may_watch_);
    if (stop_) return;
    run_share(share);
    if (n_pending_.fetch_sub(1) == 1) n_pending_.notify_one();
  }
}

void Context::run(const Task& task) {
  task_ = task;
  n_pending_.store(static_cast<std::uint32_t>(task.n_shares - 1), std::memory_order_relaxed);
  for (int share = 1; share < task.n_shares; ++share) {
    Worker& worker = workers_[static_cast<std::size_t>(share) - 1];
    worker.n_calls.fetch_add(1);
    worker.n_calls.notify_one();
  }
  run_share(0);
  for (std::uint32_t n = n_pending_.load(std::memory_order_acquire); n != 0;) {
    n = changed_from(n, n_pending_, may_watch_);
  }
  if (has_failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace cairn::kernels
