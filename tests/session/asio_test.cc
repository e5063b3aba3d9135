// Events by completion tokens: callbacks, coroutines, futures; cancelled waits lose nothing.
#include "cairn/asio.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn {
namespace {

using boost::asio::io_context;
using test::HeldStrand;
using test::live_model;
using test::LiveStore;
using test::say;
using test::words;

struct RunningTurn {
  LiveStore store;
  Session session = store.create("s");
  std::optional<Turn> turn;

  RunningTurn() {
    say(session, words(5, 1));
    start();
  }
  void start() {
    turn.emplace(std::move(*session.start_turn({.sampling = test::sampled(3), .max_tokens = 12})));
  }
};

// What a blocking reader of such a turn sees.
std::string expected_text() {
  RunningTurn running;
  return test::read_turn(*running.turn).text();
}

TEST(Asio, a_coroutine_reads_a_turn) {
  RunningTurn running;
  io_context io;
  std::string text;
  Status after_end;
  boost::asio::co_spawn(
      io,
      [&]() -> boost::asio::awaitable<void> {
        AsyncEvents events(io.get_executor(), *running.turn);
        for (;;) {
          Result<Event> event = co_await events.async_next(boost::asio::use_awaitable);
          if (!event.ok()) {
            after_end = event.status();
            co_return;
          }
          text += event->bytes;
        }
      },
      boost::asio::detached);
  io.run();
  EXPECT_EQ(text, expected_text());
  EXPECT_EQ(after_end.code(), StatusCode::kNotFound);
}

TEST(Asio, callbacks_of_several_turns_share_a_thread_and_never_run_inside_the_call) {
  RunningTurn a, b;
  io_context io;
  std::vector<std::string> texts(2);
  bool inside = false;
  AsyncEvents first(io.get_executor(), *a.turn), second(io.get_executor(), *b.turn);
  const std::function<void(AsyncEvents&, std::string&)> read = [&](AsyncEvents& events,
                                                                   std::string& text) {
    inside = true;
    events.async_next([&](Result<Event> event) {
      EXPECT_FALSE(inside);
      if (!event.ok()) return;
      text += event->bytes;
      read(events, text);
    });
    inside = false;
  };
  read(first, texts[0]);
  read(second, texts[1]);
  io.run();
  const std::string expected = expected_text();
  EXPECT_EQ(texts[0], expected);
  EXPECT_EQ(texts[1], expected);
}

TEST(Asio, a_future_waits_on_another_thread) {
  RunningTurn running;
  io_context io;
  AsyncEvents events(io.get_executor(), *running.turn);
  std::future<Result<Event>> event = events.async_next(boost::asio::use_future);
  std::thread thread([&] { io.run(); });
  const Result<Event> got = event.get();
  thread.join();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->kind, EventKind::kTurnStarted);
}

TEST(Asio, a_cancelled_wait_loses_no_event) {
  RunningTurn running;
  std::string text = test::read_turn(*running.turn).text();
  running.turn.reset();
  say(running.session, words(5, 1));
  std::optional<HeldStrand> held(std::in_place, live_model());
  running.start();
  io_context io;
  AsyncEvents events(io.get_executor(), *running.turn);
  boost::asio::cancellation_signal signal;
  int n_cancelled = 0;
  const auto count = [&](const Result<Event>& event) {
    n_cancelled += event.status().code() == StatusCode::kCancelled;
  };
  events.async_next(boost::asio::bind_cancellation_slot(signal.slot(), count));
  signal.emit(boost::asio::cancellation_type::total);
  io.run();
  EXPECT_EQ(n_cancelled, 1);
  io.restart();
  events.async_next(count);
  events.cancel();
  io.run();
  EXPECT_EQ(n_cancelled, 2);
  held.reset();
  EXPECT_TRUE(test::read_turn(*running.turn).status.ok());  // from its first event on
}

}  // namespace
}  // namespace cairn
