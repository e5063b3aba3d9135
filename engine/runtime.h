// The runtime's inside: the strand on which all engine state is changed, and the compute threads.
#ifndef CAIRN_ENGINE_RUNTIME_H_
#define CAIRN_ENGINE_RUNTIME_H_

#include <functional>
#include <memory>
#include <thread>

#include "cairn/engine.h"
#include "engine/logger.h"
#include "engine/scheduler.h"
#include "kernels/context.h"

namespace cairn::engine {

class RuntimeState {
 public:
  explicit RuntimeState(const RuntimeOptions& options);
  ~RuntimeState();  // runs what was posted, then joins

  // Runs `task` on the strand, after everything posted before. Any thread.
  void post(std::function<void()> task);
  // Waits until everything posted before has run and is destroyed. Not from the strand.
  void drain();

  // Of the jobs on the strand.
  Scheduler& scheduler() { return scheduler_; }
  kernels::Context& compute() { return compute_; }
  Logger& logger() { return logger_; }
  InstructionSet instruction_set() const { return instruction_set_; }  // the ceiling

 private:
  struct Loop;
  Logger logger_;
  InstructionSet instruction_set_;
  kernels::Context compute_;
  Scheduler scheduler_{[this](std::function<void()> task) { post(std::move(task)); }};
  std::shared_ptr<Loop> loop_;  // also held by the thread
  std::thread thread_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_RUNTIME_H_
