// Interruptions: a turn that is cancelled or closed after any of its steps, in its prompt or in its
// answer, goes on as if nothing had happened, and delivers again what it had delivered.
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/session/turn_script.h"

namespace cairn {
namespace {

using test::kBlock;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::replayed_rows;
using test::Reply;
using test::say;
using test::Script;
using test::turn;
using test::unbroken;
using test::words;

// --- Interruptions at every step.

const std::vector<Script>& interrupted_scripts() {
  // The longer prompts are a little shorter than a block: the answer crosses its end.
  static const std::vector<Script> scripts = {
      {.options = {.thinking = true}, .sampling = test::greedy(), .n_words = 18},
      {.sampling = test::penalised(22), .n_words = 10, .max_tokens = 16},
      {.sampling = test::greedy(), .n_words = 10, .max_tokens = 16},
      {.options = {.thinking = true}, .sampling = test::sampled(21), .n_words = 18},
  };
  return scripts;
}

std::string name_of(const Script& script) {
  return std::string(script.options.thinking ? "thinking" : "chat") +
         (script.sampling.temperature == 0 ? ", greedy" : ", sampled");
}

struct Answer {
  std::vector<TokenId> tokens;
  std::string text;
  int n_steps = 0;  // at most, until the turn ended
};

Answer unbroken_answer(const Script& script) {
  LiveStore store;
  Session session = store.create("unbroken", script.options);
  const Reply reply = turn(session, script, 0);
  const auto n_chunks = static_cast<int>(reply.reuse.prompt_tokens / 32 + 1);
  return {last_tokens(session), reply.text(),
          n_chunks + static_cast<int>(reply.usage.output_tokens) + 3};
}

TEST(Interruption, a_turn_cancelled_after_any_step_goes_on_as_if_it_had_not_been) {
  for (const Script& script : std::span(interrupted_scripts()).first(2)) {
    const Answer expected = unbroken_answer(script);
    LiveStore store;
    int n_resumed = 0;
    for (int n_steps = 0; n_steps < expected.n_steps; ++n_steps) {
      SCOPED_TRACE(name_of(script) + ", cancelled after step " + std::to_string(n_steps));
      const std::string name = std::to_string(n_steps);
      std::optional<Session> session = store.create(name, script.options);
      say(*session, words(script.n_words, 1));
      const Reply before = read_turn(test::start_and_cancel(live_model(), n_steps, [&] {
        return session->start_turn({.sampling = script.sampling, .max_tokens = script.max_tokens});
      }));
      if (before.end_reason != EndReason::kCancelled) break;  // it was over by then
      ++n_resumed;
      // Continue from memory, from the tail, from blocks alone.
      if (n_steps % 3 > 0) {
        session.reset();
        store.reopen();
        if (n_steps % 3 == 2) store.lose_tail(name);
        session = store.open_session(name);
      }
      const Reply after = read_turn(session->resume_turn());
      EXPECT_TRUE(after.status.ok()) << after.status.to_string();
      EXPECT_EQ(after.replayed, before.text());
      EXPECT_EQ(after.text(), expected.text);
      EXPECT_EQ(last_tokens(*session), expected.tokens);
      EXPECT_TRUE(after.reuse.exact);
      EXPECT_EQ(after.usage.resumed_tokens, before.usage.output_tokens);
      EXPECT_EQ(after.usage.output_tokens, static_cast<std::int64_t>(expected.tokens.size()));
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    EXPECT_GT(n_resumed, script.max_tokens / 2);
  }
}

TEST(Interruption, a_turn_closed_after_each_of_its_tokens_says_the_same) {
  for (const Script& script : interrupted_scripts()) {
    SCOPED_TRACE(name_of(script));
    const Answer expected = unbroken_answer(script);
    LiveStore store;
    std::optional<Session> session = store.create("s", script.options);
    say(*session, words(script.n_words, 1));
    Reply reply =
        read_turn(test::start_and_cancel(live_model(), expected.n_steps - script.max_tokens, [&] {
          return session->start_turn(
              {.sampling = script.sampling, .max_tokens = script.max_tokens});
        }));
    int n_resumed = 0;
    while (reply.end_reason == EndReason::kCancelled) {
      ASSERT_LT(n_resumed++, 3 * script.max_tokens);
      session.reset();
      store.reopen();
      session = store.open_session("s");
      const Reply before = reply;
      // Restore, events of the log, windows: the fourth step samples a token.
      reply = read_turn(
          test::start_and_cancel(live_model(), 4, [&] { return session->resume_turn(); }));
      EXPECT_EQ(reply.replayed, before.text());
      EXPECT_EQ(reply.usage.resumed_tokens, before.usage.output_tokens);
      EXPECT_LE(reply.usage.output_tokens, before.usage.output_tokens + 1);
      EXPECT_TRUE(reply.reuse.exact);
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    EXPECT_GT(n_resumed, script.max_tokens / 2);
    EXPECT_EQ(reply.text(), expected.text);
    EXPECT_EQ(last_tokens(*session), expected.tokens);
  }
}

// --- A cancelled prefill.

const Script& long_script() {
  static const Script script = {.sampling = test::sampled(31), .n_words = 400, .max_tokens = 6};
  return script;
}

const std::vector<TokenId>& long_answer() {
  static const std::vector<TokenId> tokens = unbroken(long_script(), 1)[0];
  return tokens;
}

// Starts the long turn and cancels it in the middle of its prompt.
Reply cancel_prefill(Session& session, int n_steps) {
  say(session, words(long_script().n_words, 1));
  const Reply reply = read_turn(test::start_and_cancel(live_model(), n_steps, [&] {
    return session.start_turn(
        {.sampling = long_script().sampling, .max_tokens = long_script().max_tokens});
  }));
  EXPECT_EQ(reply.end_reason, EndReason::kCancelled);
  EXPECT_EQ(reply.usage.output_tokens, 0);
  EXPECT_TRUE(session.info().turn_open);
  return reply;
}

TEST(Interruption, a_cancelled_prefill_is_continued_from_memory) {
  LiveStore store;
  Session session = store.create("s");
  cancel_prefill(session, 20);
  const Reply reply = read_turn(session.resume_turn());
  EXPECT_EQ(last_tokens(session), long_answer());
  EXPECT_EQ(reply.reuse.from_memory, 18 * 32);  // steps but restore and redelivery
  EXPECT_EQ(reply.reuse.replayed, 0);           // the windows stand where it stopped
  EXPECT_TRUE(reply.reuse.exact);
}

TEST(Interruption, a_cancelled_prefill_leaves_its_whole_blocks_in_the_store) {
  for (const int n_steps : {7, 20, 31}) {
    LiveStore store;
    {
      Session session = store.create("s");
      cancel_prefill(session, n_steps);
    }
    store.reopen();
    Session session = store.open_session("s");
    const Reply reply = read_turn(session.resume_turn());
    EXPECT_EQ(last_tokens(session), long_answer());
    const ReuseReport& reuse = reply.reuse;
    EXPECT_EQ(reuse.from_disk, (n_steps - 2) * 32 / kBlock * kBlock);
    EXPECT_GT(reuse.replayed, 0);
    EXPECT_EQ(reuse.replayed, replayed_rows(reuse.from_disk, reuse.prefilled));
    EXPECT_FALSE(reuse.tail_restored);
    EXPECT_TRUE(reuse.exact);
    EXPECT_EQ(reuse.first_difference, -1);
  }
}

TEST(Interruption, a_prefill_cancelled_again_and_again_gets_to_its_end) {
  LiveStore store;
  Session session = store.create("s");
  Reply reply = cancel_prefill(session, 10);
  for (int n_resumed = 0; reply.end_reason == EndReason::kCancelled; ++n_resumed) {
    ASSERT_LT(n_resumed, 40);
    const std::int64_t from_memory = reply.reuse.from_memory;
    reply =
        read_turn(test::start_and_cancel(live_model(), 10, [&] { return session.resume_turn(); }));
    EXPECT_GE(reply.reuse.from_memory, from_memory);
    EXPECT_TRUE(reply.reuse.exact);
  }
  EXPECT_EQ(last_tokens(session), long_answer());
}

}  // namespace
}  // namespace cairn
