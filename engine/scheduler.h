// Which work of which sequence is next on the strand. Decode steps of many jobs run as rows of one
// pass; all else (restore, a chunk of a prompt, ends) is one job's step at a time.
//
// Policy. Passes of decodes and steps of others are two queues that alternate, so a running answer
// waits for one chunk at most and a prompt for one pass. Within a queue a job of priority p is due
// again after stride(p) rounds: 1, 2, 8. The one that is due first is next, of several the one that
// waited longest; a pass takes along every decode that is due by then. Between the queues the same
// holds, with the best priority of each. A job that is ending (cancelled, out of time) comes before
// all. Nobody starves: a job that waits keeps its round, and all others move past it.
#ifndef CAIRN_ENGINE_SCHEDULER_H_
#define CAIRN_ENGINE_SCHEDULER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cairn/session.h"
#include "engine/decode_batch.h"

namespace cairn::engine {

class LoadedModel;

// What is scheduled: a turn. All on the strand; nothing throws.
class Job {
 public:
  enum class Next {
    kStep,    // step()
    kDecode,  // begin_decode(), the pass, end_decode()
    kEnd,     // step(), at once: it is the last one
    kNothing  // it is over
  };
  virtual Next next() const noexcept = 0;
  virtual void step() noexcept = 0;
  // Only decodes of one model share a pass.
  virtual const LoadedModel* model() const noexcept = 0;
  // Fills in the row. False: there is nothing to decode, this time or ever.
  virtual bool begin_decode(DecodeRow& row) noexcept = 0;
  virtual void end_decode(const DecodeRow& row) noexcept = 0;

 protected:
  ~Job() = default;
};

class Scheduler {
 public:
  // `post` runs a task on the strand; may throw.
  using Post = std::function<void(std::function<void()>)>;
  explicit Scheduler(Post post) : post_(std::move(post)) {}

  // Held until its next() is kNothing. Any thread. Throws if there is no memory for it.
  void add(std::shared_ptr<Job> job, TurnPriority priority);

  static std::int64_t stride(TurnPriority priority);

 private:
  struct Entry {
    std::shared_ptr<Job> job;
    std::int64_t stride = 1;
    std::int64_t due = 0;        // round of its queue
    std::uint64_t last_run = 0;  // in the order of all steps
    Job::Next queue = Job::Next::kStep;
  };
  struct Queue {
    std::int64_t round = 0;  // of the last that ran
    std::int64_t due = 0;    // against the other queue
  };
  // Jobs of one step, and those that are over.
  using Picked = std::array<std::shared_ptr<Job>, kMaxDecodeRows>;

  void post_step();
  // One step. What it returns is to be destroyed when nothing of the scheduler is touched any more:
  // the last owner of the runtime may be among it.
  Picked run_step() noexcept;
  std::size_t pick(Picked& picked);
  Entry* first_due(Job::Next queue);
  void ran(Entry& entry, Queue& queue);
  static void run(Picked& picked, std::size_t n) noexcept;
  bool remove_finished(const Picked& picked, std::size_t n);

  const Post post_;
  std::mutex mutex_;  // guards what follows
  std::vector<Entry> entries_;
  bool is_running_ = false;  // a step is posted, or runs
  Queue decodes_, steps_;
  bool decoded_last_ = false;
  std::uint64_t n_steps_ = 0;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SCHEDULER_H_
