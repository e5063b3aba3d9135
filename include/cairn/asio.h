// Events of a turn for programs on Boost.Asio: completion tokens instead of waiting. This header, and
// no other of the library, needs Boost.Asio (1.81 or later), header-only. Include it where it is used.
#ifndef CAIRN_ASIO_H_
#define CAIRN_ASIO_H_

#include <unistd.h>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "cairn/session.h"
#include "cairn/status.h"

namespace cairn {

// Waits for a turn's events on an executor. Borrows the turn, which must outlive it; as a reader of
// the turn it is not safe for use from several threads at once.
class AsyncEvents {
 public:
  template <class Executor>
  AsyncEvents(const Executor& executor, Turn& turn) : turn_(turn), wake_(executor) {
    boost::system::error_code failure;
    wake_.assign(dup(turn.wake_fd()), failure);  // the turn closes its own
    if (failure) failure_ = failure.message();
  }

  // Completes with void(Result<Event>), never inside this call: the next event, or what Turn::next says
  // of there being none. One at a time. kCancelled: the wait was cancelled, by the completion's
  // cancellation slot or by cancel(); no event is lost. kIoError: no descriptor.
  template <class CompletionToken>
  auto async_next(CompletionToken&& token) {
    return boost::asio::async_compose<CompletionToken, void(Result<Event>)>(Next{*this}, token,
                                                                            wake_);
  }
  // Ends the wait that is going on; the turn goes on.
  void cancel() {
    boost::system::error_code ignored;
    wake_.cancel(ignored);
  }

 private:
  struct Next {
    AsyncEvents& events;
    bool is_first = true;
    std::optional<Result<Event>> ready = {};

    template <class Self>
    void operator()(Self& self, boost::system::error_code failure = {}) {
      if (std::exchange(is_first, false)) {
        self.reset_cancellation_state(boost::asio::enable_total_cancellation());
        ready = events.poll();
        if (!ready) return wait(self);
        boost::asio::post(events.wake_.get_executor(), std::move(self));
        return;
      }
      if (!ready && failure == boost::asio::error::operation_aborted) {
        ready = Status(StatusCode::kCancelled, "the wait was cancelled");
      } else if (!ready && failure) {
        ready = Status(StatusCode::kIoError, failure.message());
      } else if (!ready) {
        ready = events.poll();
      }
      if (!ready) return wait(self);
      Result<Event> event = std::move(*ready);
      self.complete(std::move(event));
    }

    template <class Self>
    void wait(Self& self) {
      events.wake_.async_wait(boost::asio::posix::stream_descriptor::wait_read, std::move(self));
    }
  };

  // Empty: there is nothing yet.
  std::optional<Result<Event>> poll() {
    if (!failure_.empty()) return Status(StatusCode::kIoError, failure_);
    Result<Event> event = turn_.next(std::chrono::milliseconds(0));
    if (event.status().code() == StatusCode::kTimeout) return std::nullopt;
    return event;
  }

  Turn& turn_;
  boost::asio::posix::stream_descriptor wake_;
  std::string failure_;
};

}  // namespace cairn

#endif  // CAIRN_ASIO_H_
