// The only file that includes Boost.Asio in the engine: an io_context with one thread is the
// strand.
#include "engine/runtime.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>

namespace cairn::engine {
namespace {

int thread_count(int requested) {
  if (requested > 0) return requested;
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

}  // namespace

struct RuntimeState::Loop {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
};

RuntimeState::RuntimeState(const RuntimeOptions& options)
    : logger_(options.log, options.log_level),
      compute_(thread_count(options.compute_threads)),
      loop_(std::make_shared<Loop>()),
      thread_([loop = loop_] { loop->io.run(); }) {}

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
  try {
    return Runtime(std::make_shared<engine::RuntimeState>(options));
  } catch (const std::exception& e) {  // no thread to be had
    return Status(StatusCode::kOutOfMemory, std::string("cannot start the runtime: ") + e.what());
  }
}

}  // namespace cairn
