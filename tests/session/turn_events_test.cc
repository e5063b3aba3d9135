// What the events of a turn are numbered, and that whoever reads them, whenever and however often,
// reads the same.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
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

bool is_content(const Event& event) {
  return event.kind == EventKind::kBlockBegin || event.kind == EventKind::kBlockBytes ||
         event.kind == EventKind::kBlockEnd;
}

std::string content_of(const Event& event) {
  return std::to_string(static_cast<int>(event.kind)) + ' ' + std::to_string(event.block) + ' ' +
         std::to_string(static_cast<int>(event.block_kind)) + ' ' + event.bytes + ' ' +
         event.tool_call.id + ' ' + event.tool_call.name;
}

// The blocks' events of a turn by number.
using Numbered = std::map<std::uint64_t, std::string>;

void add_to(Numbered& numbered, const Event& event) {
  if (!is_content(event)) return;
  const auto [at, is_new] = numbered.emplace(event.sequence, content_of(event));
  EXPECT_TRUE(is_new || at->second == content_of(event)) << event.sequence;
}

Numbered numbered(const std::vector<Event>& events) {
  Numbered result;
  for (const Event& event : events) add_to(result, event);
  return result;
}

// From its next event on, to its end.
std::vector<Event> rest_of(Turn& turn) {
  std::vector<Event> events;
  for (const Event& event : turn.events()) events.push_back(event);
  return events;
}

Turn held(Result<Turn> turn) {
  EXPECT_TRUE(turn.ok()) << turn.status().to_string();
  return std::move(*turn);
}

const TurnOptions kOptions = {.sampling = test::sampled(3), .max_tokens = 40};

// --- Numbers.

TEST(TurnEvents, numbers_rise_within_the_session) {
  LiveStore store;
  std::optional<Session> session(store.create("s"));
  std::uint64_t last = 0;
  for (unsigned i = 0; i < 4; ++i) {
    if (i == 2) {
      session.reset();
      store.reopen();
      session.emplace(store.open_session("s"));
    }
    const std::uint64_t mark = *session->mark();
    for (const Event& event : test::ask(*session, words(5, i), kOptions).events) {
      EXPECT_GT(event.sequence, last);
      last = event.sequence;
    }
    const bool goes_back = i == 1;
    EXPECT_TRUE(!goes_back || session->rewind(mark).ok());
  }
}

TEST(TurnEvents, a_resumed_turn_repeats_the_numbers) {
  LiveStore store;
  const Numbered expected = [&] {
    Session whole = store.create("whole");
    return numbered(test::ask(whole, words(5, 1), kOptions).events);
  }();
  EXPECT_GT(expected.size(), 10u);
  for (const int n_steps : {3, 8, 20, 35}) {
    SCOPED_TRACE(n_steps);
    std::vector<Event> first;
    const std::string name = "s" + std::to_string(n_steps);
    {
      Session session = store.create(name);
      say(session, words(5, 1));
      first = read_turn(test::start_and_cancel(live_model(), n_steps, [&] {
                return session.start_turn(kOptions);
              })).events;
    }
    store.reopen();
    Session session = store.open_session(name);
    Result<Turn> turn = session.resume_turn();
    ASSERT_TRUE(turn.ok());
    const Reply second = read_turn(*turn);
    EXPECT_EQ(numbered(second.events), expected);
    const Numbered before = numbered(first);
    for (const auto& [sequence, content] : before) EXPECT_EQ(expected.at(sequence), content);
    for (const Event& event : second.events) {
      EXPECT_TRUE(!is_content(event) || event.replayed == before.contains(event.sequence));
    }
  }
}

TEST(TurnEvents, a_resumed_turn_goes_on_after_what_the_reader_has) {
  LiveStore store;
  Session session = store.create("s");
  say(session, words(5, 1));
  const std::vector<Event> first = read_turn(test::start_and_cancel(live_model(), 20, [&] {
                                     return session.start_turn(kOptions);
                                   })).events;
  const Numbered before = numbered(first);
  ASSERT_GT(before.size(), 4u);
  const std::uint64_t after = std::next(before.begin(), 3)->first;
  const std::vector<Event> rest = [&] {
    Turn turn = held(session.resume_turn(after));
    return rest_of(turn);
  }();
  EXPECT_EQ(rest.front().kind, EventKind::kTurnStarted);
  EXPECT_EQ(rest.back().kind, EventKind::kTurnEnd);
  const Numbered both = numbered(rest);
  EXPECT_EQ(both.begin()->first, std::next(before.begin(), 4)->first);
  EXPECT_EQ(both.count(after), 0u);
}

// --- Readers that go and come.

TEST(TurnEvents, a_turn_that_was_given_up_goes_on_and_is_read_again) {
  LiveStore store;
  Session whole = store.create("whole");
  const Numbered expected = numbered(test::ask(whole, words(5, 1), kOptions).events);
  Session session = store.create("s");
  say(session, words(5, 1));
  {
    Turn turn = held(session.start_turn(kOptions));
    EXPECT_TRUE(turn.next().ok());
    turn.detach();
    EXPECT_EQ(turn.next().status().code(), StatusCode::kBusy);
  }
  while (session.info().turn_open) std::this_thread::yield();  // to its end, without a reader
  EXPECT_EQ(last_tokens(session), last_tokens(whole));
  for (int i = 0; i < 3; ++i) {
    Turn turn = held(session.attach_turn());
    const Reply reply = read_turn(turn);
    EXPECT_EQ(numbered(reply.events), expected);
    EXPECT_EQ(reply.usage.output_tokens, static_cast<std::int64_t>(last_tokens(session).size()));
    turn.detach();
  }
}

TEST(TurnEvents, any_sequence_of_readers_reads_each_event_once) {
  LiveStore store;
  Session whole = store.create("whole");
  const Numbered expected = numbered(test::ask(whole, words(5, 1), kOptions).events);
  int n_readers = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    Session session = store.create("s" + std::to_string(seed));
    say(session, words(5, 1));
    Result<Turn> turn = session.start_turn(kOptions);
    Numbered read;
    std::uint64_t last = 0;
    for (bool ended = false; !ended; ++n_readers) {
      ASSERT_TRUE(turn.ok()) << turn.status().to_string();
      const bool acknowledges = rng() % 2 == 0;
      for (unsigned n = rng() % 8; n > 0 && !ended; --n) {
        const Result<Event> event = turn->next();
        ASSERT_TRUE(event.ok());
        ended = event->kind == EventKind::kTurnEnd;
        if (!is_content(*event)) continue;
        EXPECT_EQ(read.count(event->sequence), 0u);
        EXPECT_GT(event->sequence, last);
        last = event->sequence;
        add_to(read, *event);
      }
      if (acknowledges) turn->acknowledge(last);
      if (rng() % 3 == 0) {  // the old reader still holds its handle
        Result<Turn> next = session.attach_turn(acknowledges ? 0 : last);
        EXPECT_EQ(turn->next().status().code(), StatusCode::kBusy);
        turn = std::move(next);
      } else {
        turn->detach();
        turn = session.attach_turn(acknowledges ? 0 : last);
      }
    }
    EXPECT_EQ(read, expected);
  }
  std::printf("%d readers\n", n_readers);
}

TEST(TurnEvents, a_reader_that_is_far_behind_wakes_up_for_what_is_left) {
  LiveStore store;
  Session session = store.create("s");
  say(session, words(5, 1));
  EXPECT_TRUE(session.state()->begin_turn({.sampling = greedy(), .max_tokens = 202}).ok());
  const std::vector<TokenId> tokens(200, live_model().tokenize("a").at(0));
  EXPECT_TRUE(session.state()->commit_progress(tokens, session::StateToStore::kNothing).ok());
  session.state()->interrupt_turn();
  Turn turn = held(session.resume_turn());
  while (session.info().turn_open) std::this_thread::yield();
  turn.detach();
  turn = held(session.attach_turn());
  std::size_t n_events = 0;
  for (;; ++n_events) {
    const Result<Event> event = turn.next(milliseconds(60'000));  // the end may still come
    if (!event.ok()) {
      EXPECT_EQ(event.status().code(), StatusCode::kNotFound);
      break;
    }
  }
  EXPECT_GT(n_events, session::kMaxReadyEvents);
}

TEST(TurnEvents, a_turn_that_ended_is_read_again_in_another_process) {
  LiveStore store;
  Numbered expected;
  Reply first;
  {
    Session session = store.create("s");
    first = test::ask(session, words(5, 1), kOptions);
    expected = numbered(first.events);
  }
  store.reopen();
  Session session = store.open_session("s");
  for (int i = 0; i < 2; ++i) {
    Turn turn = held(session.attach_turn());
    const Reply again = read_turn(turn);
    EXPECT_EQ(numbered(again.events), expected);
    EXPECT_EQ(again.end_reason, first.end_reason);
    EXPECT_EQ(again.usage.output_tokens, first.usage.output_tokens);
    EXPECT_EQ(again.usage.context_used, first.usage.context_used);
    if (i == 0) continue;
    turn.detach();
  }
  Turn rest = held(session.attach_turn(std::prev(expected.end())->first));
  EXPECT_TRUE(numbered(read_turn(rest).events).empty());
  EXPECT_EQ(test::ask(session, "on", kOptions).status.code(), StatusCode::kOk);
}

TEST(TurnEvents, there_is_nothing_to_attach_to_without_a_turn) {
  LiveStore store;
  Session session = store.create("s");
  EXPECT_EQ(session.attach_turn().status().code(), StatusCode::kNotFound);
  say(session, words(5, 1));
  { Turn turn = held(session.start_turn(kOptions)); }  // destroyed: stopped
  EXPECT_EQ(session.attach_turn().status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(session.resume_turn().ok());
}

TEST(TurnEvents, dropping_the_session_stops_a_turn_that_was_given_up) {
  LiveStore store;
  {
    Session session = store.create("s");
    say(session, words(200, 1));
    const HeldStrand held(live_model());
    session.start_turn({.sampling = greedy(), .max_tokens = 2000})->detach();
  }
  Session session = store.open_session("s");  // not busy
  EXPECT_TRUE(session.info().turn_open);
  EXPECT_TRUE(read_turn(session.resume_turn()).status.ok());
}

// --- What is said about the work.

TEST(TurnEvents, progress_counts_what_was_reused_and_estimates_the_rest) {
  LiveStore store;
  Session session = store.create("s");
  test::ask(session, words(300, 1), kOptions);
  say(session, words(300, 2));
  Turn turn = held(session.start_turn(kOptions));
  const Reply reply = read_turn(turn);
  std::vector<Event> progress;
  for (const Event& event : reply.events) {
    if (event.kind == EventKind::kPrefillProgress) progress.push_back(event);
  }
  ASSERT_FALSE(progress.empty());
  for (const Event& event : progress) {
    EXPECT_EQ(event.total, reply.reuse.prompt_tokens);
    EXPECT_EQ(event.reused, reply.reuse.from_memory);
    EXPECT_GT(event.reused, 0);
    EXPECT_GE(event.remaining_ms, 0);  // known from the first turn on
  }
  EXPECT_EQ(progress.back().done, progress.back().total);
  EXPECT_EQ(progress.back().remaining_ms, 0);
}

TEST(TurnEvents, durable_marks_say_what_is_in_the_log) {
  for (const SessionDurability durability :
       {SessionDurability::kBuffered, SessionDurability::kSynced}) {
    LiveStore store;
    Session session = store.create("s", {.durability = durability});
    say(session, words(5, 1));
    Turn turn = held(session.start_turn({.sampling = test::sampled(3), .max_tokens = 200}));
    std::int64_t n_durable = 0;
    int n_marks = 0;
    for (const Event& event : turn.events()) {
      if (event.kind != EventKind::kDurable) continue;
      ++n_marks;
      EXPECT_GT(event.done, n_durable);
      n_durable = event.done;
    }
    EXPECT_GT(n_marks, 0);
    EXPECT_LE(n_durable, static_cast<std::int64_t>(last_tokens(session).size()));
  }
}

TEST(TurnEvents, the_range_ends_with_the_end_of_the_turn) {
  LiveStore store;
  Session session = store.create("s");
  say(session, words(5, 1));
  Turn turn = held(session.start_turn(kOptions));
  std::vector<Event> events = rest_of(turn);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().kind, EventKind::kTurnStarted);
  EXPECT_EQ(events.back().kind, EventKind::kTurnEnd);
  EXPECT_TRUE(rest_of(turn).empty());  // it has ended
  turn.detach();
  events = rest_of(turn);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().end_reason, EndReason::kError);
  EXPECT_EQ(events.front().status.code(), StatusCode::kBusy);
}

}  // namespace
}  // namespace cairn
