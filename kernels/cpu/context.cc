#include "kernels/context.h"

#include <algorithm>
#include <utility>

namespace cairn::kernels {

Context::Context(int n_threads) {
  try {
    for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop();  // a running thread must not be destroyed
    throw;
  }
}

Context::~Context() { stop(); }

void Context::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Context::run_share(int share) noexcept {
  const std::int64_t begin = n_ * share / n_shares_, end = n_ * (share + 1) / n_shares_;
  if (begin >= end) return;
  try {
    (*body_)(begin, end);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void Context::work(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      if (worker >= n_shares_) continue;
    }
    run_share(worker);
    std::lock_guard lock(mutex_);
    if (--pending_ == 0) done_.notify_one();
  }
}

void Context::parallel_for(std::int64_t n, std::int64_t grain,
                           const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (n <= 0) return;
  const std::int64_t most = std::max<std::int64_t>(1, n / std::max<std::int64_t>(1, grain));
  const int shares = static_cast<int>(std::min<std::int64_t>(n_threads(), most));
  if (shares == 1) {
    body(0, n);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    n_ = n;
    n_shares_ = shares;
    pending_ = shares - 1;
    ++generation_;
  }
  start_.notify_all();
  run_share(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return pending_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace cairn::kernels
