// What a kernel call gets besides its arguments: the threads it may use.
#ifndef CAIRN_KERNELS_CONTEXT_H_
#define CAIRN_KERNELS_CONTEXT_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cairn::kernels {

// A fixed set of threads that share out independent pieces of one operation. How pieces are shared
// out never changes a result: kernels split over outputs, never over a sum.
// `parallel_for` is called by one thread at a time (the engine's strand).
class Context {
 public:
  // Including the caller's; at least 1. Throws std::system_error if there are no threads to be had.
  explicit Context(int n_threads);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for disjoint ranges that cover [0, n), at least `grain` long, and
  // returns when all are done. If any of them threw (out of memory), throws one of the exceptions
  // then; what the others wrote is there.
  void parallel_for(std::int64_t n, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void work(int worker);
  void run_share(int share) noexcept;
  void stop() noexcept;

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::uint64_t generation_ = 0;
  int pending_ = 0;
  bool stop_ = false;
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
  std::int64_t n_ = 0;
  int n_shares_ = 0;
  std::exception_ptr failure_;  // the first of this parallel_for
};

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CONTEXT_H_
