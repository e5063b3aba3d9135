// The stream of a turn between the strand and its reader: waiting, back-pressure, cancelling,
// dropping handles, many turns at once.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/session/live_session.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using test::greedy;
using test::HeldStrand;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;
using test::words;

bool readable(int descriptor, int timeout_ms = 0) {
  pollfd entry = {descriptor, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

constexpr int kPatienceMs = 60'000;  // far more than anything here takes

// --- Waiting.

TEST(Turn, waiting_has_a_limit) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "hello");
  std::optional<HeldStrand> held(std::in_place, live_model());
  Result<Turn> turn = session.start_turn({.sampling = greedy(), .max_tokens = 3});
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->next(milliseconds(0)).status().code(), StatusCode::kTimeout);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(turn->next(milliseconds(20)).status().code(), StatusCode::kTimeout);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(20));
  held.reset();
  EXPECT_TRUE(read_turn(*turn).status.ok());
  EXPECT_EQ(turn->next(milliseconds(0)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(turn->next().status().code(), StatusCode::kNotFound);
}

TEST(Turn, the_longest_wait_does_not_end_at_once) {
  LiveStore store;
  Session session = store.create("s");
  say(session, words(100, 1));
  Result<Turn> turn = session.start_turn({.sampling = greedy(), .max_tokens = 10});
  ASSERT_TRUE(turn.ok());
  for (;;) {
    const Result<Event> event = turn->next(milliseconds::max());
    ASSERT_TRUE(event.ok()) << event.status().to_string();
    if (event->kind == EventKind::kTurnEnd) break;
  }
  // What follows the end never waits, whatever the strand still does.
  EXPECT_EQ(turn->next(milliseconds(0)).status().code(), StatusCode::kNotFound);
}

TEST(Turn, the_wake_up_descriptor_is_readable_while_an_event_waits) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "hello");
  std::optional<HeldStrand> held(std::in_place, live_model());
  Result<Turn> turn = session.start_turn({.sampling = greedy(), .max_tokens = 5});
  ASSERT_TRUE(turn.ok());
  EXPECT_FALSE(readable(turn->wake_fd()));
  held.reset();
  for (bool ended = false; !ended;) {
    ASSERT_TRUE(readable(turn->wake_fd(), kPatienceMs));
    const HeldStrand quiet(live_model());
    for (;;) {
      const bool waits = readable(turn->wake_fd());
      const Result<Event> event = turn->next(milliseconds(0));
      EXPECT_EQ(event.ok(), waits);
      if (!event.ok()) break;
      ended = event->kind == EventKind::kTurnEnd;
    }
  }
  EXPECT_FALSE(readable(turn->wake_fd()));
}

// --- A reader that does not read.

// Posted behind one step of a turn after the other: when this returns, the turn has run `n` steps.
void let_run(const Model& model, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) model.state()->runtime()->drain();
}

// A turn with a long answer in its log, resumed by a reader that has not read anything yet.
struct UnreadTurn {
  LiveStore store;
  Session session;
  std::optional<Turn> turn;

  // As a turn of `model` that said `n_tokens` times the same letter leaves its session; it may say
  // two tokens more.
  explicit UnreadTurn(std::size_t n_tokens, const Model& model = live_model())
      : store(model), session(store.create("s")) {
    say(session, "hello");
    const auto max_tokens = static_cast<std::int32_t>(n_tokens + 2);
    EXPECT_TRUE(session.state()->begin_turn({.sampling = greedy(), .max_tokens = max_tokens}).ok());
    const std::vector<TokenId> letter = model.tokenize("a");
    EXPECT_EQ(letter.size(), 1u);
    const std::vector<TokenId> tokens(n_tokens, letter[0]);
    EXPECT_TRUE(session.state()->commit_progress(tokens, session::StateToStore::kNothing).ok());
    session.state()->interrupt_turn();
    turn.emplace(std::move(*session.resume_turn()));
  }
};

std::string replayed_text(const Event& event) { return event.replayed ? event.bytes : ""; }

TEST(Turn, it_does_not_wait_for_its_reader) {
  constexpr std::size_t kTokens = 1300;
  // Each step of the prompt is one token and one event.
  const Model slow = *Model::open(test::live_runtime(), test::kTinyA, {.prefill_chunk = 1});
  UnreadTurn unread(kTokens, slow);
  let_run(slow, 2 * kTokens);
  EXPECT_FALSE(unread.session.info().turn_open);
  const Reply reply = read_turn(*unread.turn);
  EXPECT_EQ(reply.replayed, std::string(kTokens, 'a'));
  EXPECT_EQ(reply.end_reason, EndReason::kLength);
  EXPECT_GT(last_tokens(unread.session).size(), kTokens);
  const auto is_progress = [](const Event& e) { return e.kind == EventKind::kPrefillProgress; };
  EXPECT_EQ(std::ranges::count_if(reply.events, is_progress), 1);  // the newest
}

TEST(Turn, one_that_nobody_has_read_can_be_dropped_and_resumed) {
  constexpr std::size_t kTokens = 2500;
  UnreadTurn unread(kTokens);
  let_run(live_model(), 20);
  unread.turn.reset();
  EXPECT_TRUE(unread.session.info().turn_open);
  Result<Turn> turn = unread.session.resume_turn();
  ASSERT_TRUE(turn.ok());
  std::string text;
  while (text.size() < kTokens) {
    const Result<Event> event = turn->next();
    ASSERT_TRUE(event.ok());
    text += replayed_text(*event);
  }
}

// --- Cancelling and dropping.

TEST(Turn, cancelling_is_idempotent_and_harmless_after_the_end) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "hello");
  Result<Turn> turn = session.start_turn({.sampling = greedy(), .max_tokens = 4});
  ASSERT_TRUE(turn.ok());
  EXPECT_TRUE(read_turn(*turn).status.ok());
  turn->cancel();
  turn->cancel();
  EXPECT_EQ(turn->next().status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(session.info().turn_open);
  EXPECT_EQ(session.messages()->size(), 2u);
}

TEST(Turn, one_that_is_dropped_anywhere_can_be_resumed) {
  const TurnOptions options = {.sampling = test::sampled(9), .max_tokens = 20};
  std::vector<TokenId> expected;
  {
    LiveStore store;
    Session session = store.create("s");
    test::ask(session, words(20, 1), options);
    expected = last_tokens(session);
  }
  LiveStore store;
  for (int n_events = 0; n_events < 32; n_events += 4) {
    Session session = store.create(std::to_string(n_events));
    say(session, words(20, 1));
    {
      Result<Turn> turn = session.start_turn(options);
      for (int i = 0; i < n_events; ++i) (void)turn->next();
    }  // running, or ended and not read
    if (session.info().turn_open) read_turn(session.resume_turn());
    EXPECT_EQ(last_tokens(session), expected);
  }
}

TEST(Turn, assigning_over_a_running_turn_stops_it) {
  LiveStore store;
  Session a = store.create("a"), b = store.create("b");
  say(a, words(200, 1));
  say(b, "hello");
  const TurnOptions options = {.sampling = greedy(), .max_tokens = 3};
  Turn turn = std::move(*a.start_turn(options));
  turn = std::move(*b.start_turn(options));
  EXPECT_TRUE(read_turn(turn).status.ok());
  EXPECT_EQ(last_tokens(b).size(), 3u);
  EXPECT_TRUE(a.info().turn_open || a.messages()->size() == 2);
  EXPECT_EQ(b.messages()->size(), 2u);
}

TEST(Turn, it_outlives_the_handles_it_came_from) {
  LiveStore store;
  std::optional<Turn> turn;
  {
    Session session = store.create("s");
    say(session, words(100, 1));
    turn.emplace(std::move(*session.start_turn({.sampling = greedy(), .max_tokens = 5})));
  }
  store.close();
  EXPECT_EQ(Store::open(test::live_runtime(), store.path()).status().code(), StatusCode::kBusy);
  EXPECT_TRUE(read_turn(*turn).status.ok());
  turn.reset();
  store.open();
  EXPECT_EQ(store.open_session("s").messages()->size(), 2u);
}

// --- Many at once. These are what a build with -DCAIRN_SANITIZE=thread is for.

TEST(Turns, sessions_on_several_threads_say_what_they_say_alone) {
  constexpr unsigned kThreads = 3, kTurns = 2;
  const auto converse = [](Session& session, unsigned number) {
    std::vector<std::vector<TokenId>> answers;
    for (unsigned i = 0; i < kTurns; ++i) {
      test::ask(session, words(20, 10 * number + i),
                {.sampling = test::sampled(number), .max_tokens = 12});
      answers.push_back(last_tokens(session));
    }
    return answers;
  };
  LiveStore store;
  std::vector<std::vector<std::vector<TokenId>>> answers(kThreads);
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      Session session = store.create(std::to_string(number));
      answers[number] = converse(session, number);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (unsigned number = 0; number < kThreads; ++number) {
    Session session = store.create("alone " + std::to_string(number));
    EXPECT_EQ(converse(session, number), answers[number]);
  }
}

TEST(Turns, cancels_and_appends_come_from_any_thread) {
  LiveStore store;
  for (int i = 0; i < 12; ++i) {
    Session session = store.create(std::to_string(i));
    say(session, words(100, 1));
    Result<Turn> turn = session.start_turn({.sampling = greedy(), .max_tokens = 200});
    ASSERT_TRUE(turn.ok());
    std::thread canceller([&] {
      std::this_thread::sleep_for(milliseconds(3 * i));
      turn->cancel();
    });
    std::thread appender([&] {
      while (session.append(Message::user("while it runs")).code() == StatusCode::kBusy) {
        (void)session.info();
        (void)session.messages();
        std::this_thread::yield();
      }
    });
    const Reply reply = read_turn(*turn);
    EXPECT_TRUE(reply.status.ok());
    canceller.join();
    appender.join();
    EXPECT_EQ(session.messages()->size(), 3u);
    EXPECT_FALSE(session.info().turn_open);
  }
}

TEST(Turns, two_runtimes_run_beside_each_other) {
  const auto converse = [](const Runtime& runtime, std::vector<TokenId>& tokens) {
    const test::TemporaryFolder folder;
    const Result<Model> model = Model::open(runtime, test::kTinyA, {.prefill_chunk = 16});
    const Result<Store> store = Store::open(runtime, folder / "store");
    ASSERT_TRUE(model.ok() && store.ok());
    Result<Session> session = Session::create(*model, *store, "s");
    ASSERT_TRUE(session.ok());
    test::ask(*session, words(30, 1), {.sampling = test::sampled(1), .max_tokens = 20});
    tokens = last_tokens(*session);
  };
  std::vector<TokenId> here, there, alone;
  {
    RuntimeOptions options;
    options.compute_threads = 1;
    const Result<Runtime> first = Runtime::create(options), second = Runtime::create(options);
    ASSERT_TRUE(first.ok() && second.ok());
    std::thread thread([&] { converse(*first, here); });
    converse(*second, there);
    thread.join();
  }
  converse(test::live_runtime(), alone);
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(here, alone);
  EXPECT_EQ(there, alone);
}

TEST(Turns, the_last_handles_may_be_dropped_while_a_turn_runs) {
  std::optional<Turn> turn;
  const test::TemporaryFolder folder;
  {
    const Runtime runtime = *Runtime::create();
    const Model model = *Model::open(runtime, test::kTinyA);
    const Store store = *Store::open(runtime, folder / "store");
    Session session = *Session::create(model, store, "s");
    say(session, words(100, 1));
    turn.emplace(std::move(*session.start_turn({.sampling = greedy(), .max_tokens = 100})));
  }
  EXPECT_TRUE(turn->next().ok());
  turn.reset();  // the last owner of everything
  const Store store = *Store::open(test::live_runtime(), folder / "store");
  EXPECT_EQ(store.list()->size(), 1u);
}

}  // namespace
}  // namespace cairn
