// What a kernel call gets besides its arguments: the threads it may use.
#ifndef CAIRN_KERNELS_CONTEXT_H_
#define CAIRN_KERNELS_CONTEXT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <thread>
#include <vector>

namespace cairn::kernels {

// A fixed set of threads that share out independent pieces of one operation. How pieces are shared
// out never changes a result: kernels split over outputs, never over a sum.
// `parallel_for` is called by one thread at a time (the engine's strand).
//
// Between two operations of a step a worker watches for the next one, for kWatch at most; then it
// sleeps and an idle context takes no CPU time. It does not watch at all where there are more
// threads than CPUs for them: it would keep one from working. Neither calling nor ending takes a
// lock or memory.
class Context {
 public:
  // `n_threads` includes the caller's and is at least 1. `cpus`: empty, or one for each thread, the
  // caller's first: the workers run on theirs only; the caller's thread is its owner's to pin.
  // Throws std::system_error if there are no threads to be had or a CPU is none of this process.
  explicit Context(int n_threads, std::span<const std::int32_t> cpus = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for disjoint ranges that cover [0, n), at least `grain` long, each
  // thread for one range at most, and returns when all are done. If any of them threw (out of
  // memory), throws one of the exceptions then; what the others wrote is there.
  template <class Body>
  void parallel_for(std::int64_t n, std::int64_t grain, const Body& body) {
    if (n <= 0) return;
    const std::int64_t most = std::max<std::int64_t>(1, n / std::max<std::int64_t>(1, grain));
    const auto n_shares = static_cast<int>(std::min<std::int64_t>(n_threads(), most));
    if (n_shares == 1) {
      body(std::int64_t{0}, n);
      return;
    }
    run({n, n_shares, &body, [](const void* b, std::int64_t begin, std::int64_t end) {
           (*static_cast<const Body*>(b))(begin, end);
         }});
  }

 private:
  struct Task {
    std::int64_t n = 0;
    int n_shares = 0;
    const void* body = nullptr;
    void (*call)(const void* body, std::int64_t begin, std::int64_t end) = nullptr;
  };
  struct alignas(64) Worker {
    std::atomic<std::uint32_t> n_calls = 0;  // changes when there is a share for it, or at the end
    std::thread thread;
  };

  void run(const Task& task);
  void work(Worker& self, int share);
  void run_share(int share) noexcept;
  void stop() noexcept;

  const bool may_watch_;
  std::vector<Worker> workers_;
  Task task_;  // written before n_calls of those who take part
  bool stop_ = false;
  std::atomic<bool> has_failed_ = false;
  std::exception_ptr failure_;  // the first of this parallel_for
  alignas(64) std::atomic<std::uint32_t> n_pending_ = 0;
};

// Lets a thread run on that CPU only. Throws std::system_error.
void pin_thread(std::thread& thread, std::int32_t cpu);

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CONTEXT_H_
