// The only file that includes Boost.Asio in the engine: an io_context with one thread is the
// strand. That thread computes too: it is thread 0 of the compute threads.
#include "engine/runtime.h"

#include <sched.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>

namespace cairn::engine {
namespace {

int thread_count(const RuntimeOptions& options) {
  if (options.compute_threads > 0) return options.compute_threads;
  if (!options.compute_cpus.empty()) return static_cast<int>(options.compute_cpus.size());
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

Status check_cpus(const RuntimeOptions& options) {
  const std::vector<std::int32_t>& cpus = options.compute_cpus;
  if (cpus.empty()) return {};
  if (options.compute_threads != 0 &&
      cpus.size() != static_cast<std::size_t>(options.compute_threads)) {
    return invalid_argument("compute_cpus names " + std::to_string(cpus.size()) + " CPUs for " +
                            std::to_string(options.compute_threads) +
                            " compute_threads: one for each thread, or none");
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};  // pinning will tell
  for (const std::int32_t cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) {
      return invalid_argument("compute_cpus names CPU " + std::to_string(cpu) +
                              ", on which this process cannot run");
    }
    if (std::ranges::count(cpus, cpu) > 1) {
      return invalid_argument("compute_cpus names CPU " + std::to_string(cpu) + " twice");
    }
  }
  return {};
}

}  // namespace

struct RuntimeState::Loop {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
};

RuntimeState::RuntimeState(const RuntimeOptions& options)
    : logger_(options.log, options.log_level),
      instruction_set_(options.instruction_set),
      compute_(thread_count(options), options.compute_cpus),
      loop_(std::make_shared<Loop>()),
      thread_([loop = loop_] { loop->io.run(); }) {
  if (options.compute_cpus.empty()) return;
  try {
    kernels::pin_thread(thread_, options.compute_cpus[0]);
  } catch (...) {
    loop_->work.reset();
    thread_.join();
    throw;
  }
}

RuntimeState::~RuntimeState() {
  loop_->work.reset();
  // The last owner may be a task on the strand itself: a thread cannot join itself, and what is
  // posted runs to its end without us.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void RuntimeState::post(std::function<void()> task) {
  boost::asio::post(loop_->io, std::move(task));
}

void RuntimeState::drain() {
  std::promise<void> reached;
  post([&] { reached.set_value(); });
  reached.get_future().wait();
}

}  // namespace cairn::engine

namespace cairn {

Result<Runtime> Runtime::create(const RuntimeOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.compute_threads < 0 || options.compute_threads > kMaxThreads) {
    return invalid_argument("compute_threads is " + std::to_string(options.compute_threads) +
                            ", must be 0 (one a core) to " + std::to_string(kMaxThreads));
  }
  CAIRN_RETURN_IF_ERROR(engine::check_cpus(options));
  if (options.instruction_set < InstructionSet::kBest ||
      options.instruction_set > InstructionSet::kNeon) {
    return invalid_argument("instruction_set has no value " +
                            std::to_string(static_cast<int>(options.instruction_set)));
  }
  try {
    return Runtime(std::make_shared<engine::RuntimeState>(options));
  } catch (const std::exception& e) {  // no thread to be had
    return Status(StatusCode::kOutOfMemory, std::string("cannot start the runtime: ") + e.what());
  }
}

}  // namespace cairn
