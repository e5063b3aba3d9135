// What a kernel call gets besides its arguments: the threads it may use.
#ifndef CAIRN_KERNELS_CONTEXT_H_
#define CAIRN_KERNELS_CONTEXT_H_

#include <condition_variable>
#include <cstdint>
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
  explicit Context(int n_threads);  // including the caller's; at least 1
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for disjoint ranges that cover [0, n), at least `grain` long, and
  // returns when all are done. `body` must not throw.
  void parallel_for(std::int64_t n, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void work(int worker);
  void run_share(int share);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::uint64_t generation_ = 0;
  int pending_ = 0;
  bool stop_ = false;
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
  std::int64_t n_ = 0;
  int n_shares_ = 0;
};

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CONTEXT_H_
