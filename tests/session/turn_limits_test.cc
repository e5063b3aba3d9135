// The ends of a turn that its host sets: each with its reason, and the same when the turn was
// interrupted and resumed at any place.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/utf8.h"
#include "tests/session/live_session.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using test::HeldStrand;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;
using test::words;

// Answers in steps: the turn is cancelled after each n_steps and resumed.
Reply answer(Session& session, const TurnOptions& options, int n_steps) {
  say(session, words(5, 1));
  Reply reply = read_turn(
      test::start_and_cancel(live_model(), n_steps, [&] { return session.start_turn(options); }));
  for (int more = n_steps + 4; reply.end_reason == EndReason::kCancelled; more += 3) {
    reply = read_turn(
        test::start_and_cancel(live_model(), more, [&] { return session.resume_turn(); }));
  }
  return reply;
}

constexpr int kUnbroken = 100'000;

struct Outcome {
  EndReason reason = EndReason::kError;
  std::string delivered, text, stop;
  std::vector<TokenId> tokens;
  std::int64_t reasoning_tokens = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// In a new session, whose turns are interrupted every n_steps.
Outcome outcome(LiveStore& store, const SessionOptions& session_options, const TurnOptions& options,
                int n_steps = kUnbroken) {
  static int number = 0;
  Session session = store.create("s" + std::to_string(number++), session_options);
  const Reply reply = answer(session, options, n_steps);
  EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
  EXPECT_FALSE(session.info().turn_open);
  const Message message = session.messages()->back();
  return {
      reply.end_reason,          reply.text(),         message.reasoning + test::text_of(message),
      reply.events.back().bytes, last_tokens(session), reply.usage.reasoning_tokens};
}

void expect_same_when_interrupted(LiveStore& store, const SessionOptions& session_options,
                                  const TurnOptions& options, const Outcome& expected) {
  for (const int n_steps : {3, 4, 6, 9, 14}) {
    SCOPED_TRACE("steps " + std::to_string(n_steps));
    EXPECT_EQ(outcome(store, session_options, options, n_steps), expected);
  }
}

TEST(TurnLimits, reasoning_ends_at_its_limit_and_the_answer_goes_on) {
  LiveStore store;
  const SessionOptions thinking = {.thinking = true};
  const std::vector<TokenId>& ending = live_model().state()->think_ending();
  for (const std::int32_t limit : {1, 2, 7}) {
    SCOPED_TRACE("limit " + std::to_string(limit));
    TurnOptions options = {.sampling = test::sampled(21), .max_tokens = 20};
    const Outcome free = outcome(store, thinking, options);
    ASSERT_GT(free.reasoning_tokens, limit + std::ssize(ending));
    options.limits.reasoning_tokens = limit;
    const Outcome limited = outcome(store, thinking, options);
    EXPECT_EQ(limited.reasoning_tokens, limit + std::ssize(ending));
    EXPECT_GT(limited.tokens.size(), static_cast<std::size_t>(limit) + ending.size());
    EXPECT_TRUE(std::equal(ending.begin(), ending.end(), limited.tokens.begin() + limit));
    EXPECT_TRUE(
        std::equal(limited.tokens.begin(), limited.tokens.begin() + limit, free.tokens.begin()));
    expect_same_when_interrupted(store, thinking, options, limited);
  }
}

TEST(TurnLimits, context_is_limited_before_the_prompt_and_after_it) {
  LiveStore store;
  TurnOptions options = {.sampling = test::sampled(3), .max_tokens = 40};
  Session session = store.create("s");
  say(session, words(5, 1));
  const Reply free = read_turn(session.start_turn(options));
  options.limits.context_tokens = free.reuse.prompt_tokens + 6;
  const Outcome limited = outcome(store, {}, options);
  EXPECT_EQ(limited.reason, EndReason::kContextLimit);
  EXPECT_EQ(limited.tokens.size(), 6u);
  expect_same_when_interrupted(store, {}, options, limited);

  Session full = store.create("full");
  say(full, words(5, 1));
  options.limits.context_tokens = free.reuse.prompt_tokens;
  const Status refused = full.start_turn(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kContextFull);
  const std::string n = std::to_string(free.reuse.prompt_tokens);
  EXPECT_NE(refused.message().find("would have " + n), std::string_view::npos);
  EXPECT_NE(refused.message().find("limit of context is " + n), std::string_view::npos);
  EXPECT_FALSE(full.info().turn_open);
}

TEST(TurnLimits, a_turn_whose_time_is_over_stops_and_can_be_resumed) {
  LiveStore store;
  Session session = store.create("s");
  say(session, words(5, 1));
  TurnOptions options = {.sampling = test::sampled(3), .max_tokens = 20};
  options.limits.time = milliseconds(1);
  for (int run = 0; run < 2; ++run) {  // a resumed turn has its own time
    SCOPED_TRACE(run);
    Result<Turn> turn = Status();
    {
      const HeldStrand held(live_model());
      turn = run == 0 ? session.start_turn(options) : session.resume_turn();
      ASSERT_TRUE(turn.ok());
      std::this_thread::sleep_for(milliseconds(2));
    }
    const Reply reply = read_turn(*turn);
    EXPECT_EQ(reply.end_reason, EndReason::kTimeLimit);
    EXPECT_TRUE(session.info().turn_open);
  }
  say(session, "go on");  // closes it
  options.limits.time = std::chrono::hours(1);
  EXPECT_EQ(read_turn(session.start_turn(options)).end_reason, EndReason::kLength);
}

TEST(TurnLimits, calls_are_limited) {
  LiveStore store;
  const std::string call =
      "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">1"
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n";
  for (const std::int32_t limit : {1, 2}) {
    Session session = store.create("s" + std::to_string(limit));
    say(session, "hello");
    TurnOptions options = {.sampling = test::greedy(), .max_tokens = 4000};
    options.limits.tool_calls = limit;
    EXPECT_TRUE(session.state()->begin_turn(options).ok());
    const auto tokens = live_model().tokenize("Go.\n\n<｜DSML｜ calls>\n" + call + call + call);
    EXPECT_TRUE(session.state()->commit_progress(tokens, session::StateToStore::kNothing).ok());
    session.state()->interrupt_turn();
    const Reply reply = read_turn(session.resume_turn());
    EXPECT_EQ(reply.end_reason, EndReason::kCallLimit);
    const Message message = session.messages()->back();
    EXPECT_EQ(message.tool_calls.size(), static_cast<std::size_t>(limit));
    EXPECT_EQ(test::text_of(message), "Go.");
    EXPECT_EQ(message.sampled_tokens, tokens);
  }
}

// Where characters begin.
std::vector<std::size_t> boundaries(const std::string& text) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) places.push_back(i);
  }
  places.push_back(text.size());
  return places;
}

TEST(TurnLimits, a_stop_string_from_anywhere_in_an_answer_ends_it_there) {
  constexpr unsigned kSeed = 5;
  std::mt19937 rng(kSeed);
  LiveStore store;
  TurnOptions options = {.sampling = test::sampled(3), .max_tokens = 30};
  const Outcome free = outcome(store, {}, options);
  const std::vector<std::size_t> places = boundaries(free.text);
  ASSERT_GT(places.size(), 20u);
  constexpr int kRuns = 25;
  for (int run = 0; run < kRuns; ++run) {
    const std::size_t from = rng() % (places.size() - 1);
    const std::size_t to = std::min(from + 1 + rng() % 12, places.size() - 1);
    const std::string stop = free.text.substr(places[from], places[to] - places[from]);
    SCOPED_TRACE("stop '" + stop + "'");
    options.limits.stop = {"never said", stop};
    const Outcome stopped = outcome(store, {}, options);
    EXPECT_EQ(stopped.reason, EndReason::kStopString);
    EXPECT_EQ(stopped.stop, stop);
    EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(stop)));
    EXPECT_EQ(stopped.delivered, stopped.text);
    EXPECT_TRUE(std::equal(stopped.tokens.begin(), stopped.tokens.end(), free.tokens.begin()));
    if (run < 4) expect_same_when_interrupted(store, {}, options, stopped);
  }
  std::printf("seed %u, %d stop strings\n", kSeed, kRuns);
}

TEST(TurnLimits, what_makes_no_sense_is_refused) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "hello");
  const auto refused = [&](const std::function<void(TurnOptions&)>& change, const char* field) {
    TurnOptions options;
    change(options);
    const Status status = session.start_turn(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(field), std::string_view::npos) << status.to_string();
  };
  refused([](TurnOptions& o) { o.max_tokens = 0; }, "max_tokens");
  refused([](TurnOptions& o) { o.limits.reasoning_tokens = -1; }, "reasoning_tokens");
  refused([](TurnOptions& o) { o.limits.context_tokens = -1; }, "context_tokens");
  refused([](TurnOptions& o) { o.limits.tool_calls = -1; }, "tool_calls");
  refused([](TurnOptions& o) { o.limits.time = milliseconds(-1); }, "time");
  refused([](TurnOptions& o) { o.limits.stop = {""}; }, "stop[0]");
  refused([](TurnOptions& o) { o.priority = TurnPriority{3}; }, "priority");
  EXPECT_FALSE(session.info().turn_open);
}

}  // namespace
}  // namespace cairn
