// Turns as a host steers them: answers that go on, reasoning that ends, modes of a turn, results of
// calls, text that changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/session/client_history.h"
#include "tests/session/thinking_model.h"

namespace cairn {
namespace {

using test::ask;
using test::greedy;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;
using test::start_and_cancel;
using test::text_of;
using test::thinking_model;
using test::words;

TurnOptions turn(int max_tokens, std::uint64_t seed = 3) {
  return {.sampling = test::sampled(seed), .max_tokens = max_tokens};
}
TurnOptions going_on(int max_tokens, std::uint64_t seed = 3) {
  TurnOptions options = turn(max_tokens, seed);
  options.continue_answer = true;
  return options;
}

std::string shown(const Message& message) { return message.reasoning + text_of(message); }

// --- Answers that go on.

TEST(Answer, one_that_a_limit_cut_off_goes_on_as_if_it_had_not) {
  LiveStore store;
  Session whole = store.create("whole"), cut = store.create("cut");
  const Reply at_once = ask(whole, words(30, 1), turn(24));
  const Reply first = ask(cut, words(30, 1), turn(10));
  ASSERT_EQ(first.end_reason, EndReason::kLength);
  const Reply rest = read_turn(cut.start_turn(going_on(14)));
  EXPECT_EQ(last_tokens(cut), last_tokens(whole));
  EXPECT_EQ(rest.text(), at_once.text());
  EXPECT_EQ(rest.reuse.prefilled, 1);  // the last token was sampled, not computed
  EXPECT_EQ(rest.usage.output_tokens, 14);
  EXPECT_FALSE(rest.replayed.empty());
  const auto messages = cut.messages();
  ASSERT_EQ(messages->size(), 2u);
  EXPECT_EQ(shown(messages->back()), rest.text());

  store.lose_tail("cut");
  const Reply next = ask(cut, "more", turn(6));
  const Reply same = ask(whole, "more", turn(6));
  EXPECT_EQ(last_tokens(cut), last_tokens(whole));
  EXPECT_EQ(next.reuse.prompt_tokens, same.reuse.prompt_tokens);
}

TEST(Answer, one_that_is_interrupted_while_it_goes_on_is_resumed) {
  LiveStore store;
  std::vector<TokenId> tokens;
  std::string text;
  {
    Session whole = store.create("whole");
    ask(whole, words(30, 1), turn(24));
    tokens = last_tokens(whole);
    text = shown(whole.messages()->back());
  }
  for (const int n_steps : {0, 1, 2, 5, 9}) {
    const std::string name = "cut " + std::to_string(n_steps);
    {
      Session cut = store.create(name);
      ask(cut, words(30, 1), turn(10));
      Result<Turn> stopped =
          start_and_cancel(live_model(), n_steps, [&] { return cut.start_turn(going_on(14)); });
      ASSERT_TRUE(stopped.ok());
      ASSERT_EQ(read_turn(*stopped).end_reason, EndReason::kCancelled);
    }
    store.reopen();
    Session cut = store.open_session(name);
    ASSERT_EQ(read_turn(cut.resume_turn()).end_reason, EndReason::kLength);
    const auto messages = cut.messages();
    ASSERT_EQ(messages->size(), 2u);
    EXPECT_EQ(last_tokens(cut), tokens);
    EXPECT_EQ(shown(messages->back()), text);
  }
}

TEST(Answer, one_that_was_closed_goes_on_after_a_rewind) {
  LiveStore store;
  Session session = store.create("s");
  say(session, words(20, 1));
  Result<Turn> stopped =
      start_and_cancel(live_model(), 8, [&] { return session.start_turn(turn(24)); });
  ASSERT_TRUE(stopped.ok());
  read_turn(*stopped);
  say(session, "stop that");
  const auto messages = session.messages();
  ASSERT_EQ(messages->size(), 3u);
  const std::vector<TokenId> begun = messages->at(1).sampled_tokens;
  ASSERT_FALSE(begun.empty());
  ASSERT_TRUE(session.rewind(messages->at(1).event).ok());
  read_turn(session.start_turn(going_on(24 - static_cast<int>(begun.size()))));

  Session whole = store.create("whole");
  ask(whole, words(20, 1), turn(24));
  EXPECT_EQ(last_tokens(session), last_tokens(whole));
}

TEST(Answer, one_that_the_host_began_is_continued_in_its_words) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "count");
  Message begun;
  begun.role = Role::kAssistant;
  begun.content.push_back({ContentBlock::Kind::kText, "One, two", {}});
  ASSERT_TRUE(session.append(begun).ok());
  const Reply reply = read_turn(session.start_turn(going_on(8)));
  EXPECT_EQ(reply.replayed, "One, two");
  EXPECT_EQ(reply.text().rfind("One, two", 0), 0u);
  EXPECT_EQ(text_of(session.messages()->back()), reply.text());
  // What comes next stands on the tokens that were computed.
  const Reply next = ask(session, "and", turn(4));
  EXPECT_EQ(next.reuse.from_memory, reply.usage.context_used - 1);
}

TEST(Answer, nothing_goes_on_where_there_is_no_answer) {
  LiveStore store;
  Session session = store.create("s");
  EXPECT_EQ(session.start_turn(going_on(4)).status().code(), StatusCode::kInvalidArgument);
  say(session, "hello");
  EXPECT_EQ(session.start_turn(going_on(4)).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session.append(test::called(live_model(), "", {{"c", "f", "{}"}})).ok());
  EXPECT_EQ(session.start_turn(going_on(4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(session.info().turn_open);
}

// --- Reasoning.

TEST(Thinking, its_end_is_a_token_of_the_answer) {
  LiveStore store(thinking_model());
  Session session = store.create("s", {.thinking = true});
  say(session, words(20, 1));
  Result<Turn> turn_now = [&] {
    const test::HeldStrand held(thinking_model());
    Result<Turn> started = session.start_turn(turn(8));
    EXPECT_TRUE(started->end_thinking().ok());
    return started;
  }();
  const Reply reply = read_turn(*turn_now);
  EXPECT_EQ(last_tokens(session)[0], test::kThinkEndId);
  EXPECT_TRUE(session.messages()->back().reasoning.empty());
  EXPECT_EQ(reply.usage.reasoning_tokens, 1);
}

TEST(Thinking, a_resumed_turn_ends_it_where_it_was_ended) {
  LiveStore store(thinking_model());
  std::vector<TokenId> begun;
  {
    Session session = store.create("s", {.thinking = true});
    say(session, words(20, 1));
    Result<Turn> stopped =
        start_and_cancel(thinking_model(), 9, [&] { return session.start_turn(turn(20)); });
    read_turn(*stopped);
  }
  store.reopen();
  Session session = store.open_session("s");
  Result<Turn> resumed = [&] {
    const test::HeldStrand held(thinking_model());
    Result<Turn> started = session.resume_turn();
    EXPECT_TRUE(started->end_thinking().ok());
    return started;
  }();
  const Reply reply = read_turn(*resumed);
  ASSERT_GT(reply.usage.resumed_tokens, 0);
  const std::vector<TokenId> tokens = last_tokens(session);
  const auto n_resumed = static_cast<std::size_t>(reply.usage.resumed_tokens);
  EXPECT_EQ(tokens[n_resumed], test::kThinkEndId);
  EXPECT_EQ(std::count(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_resumed),
                       test::kThinkEndId),
            0);
  EXPECT_FALSE(session.messages()->back().reasoning.empty());
}

TEST(Thinking, cannot_be_ended_without_the_token_for_it) {
  LiveStore store;
  Session session = store.create("s", {.thinking = true});
  say(session, "why");
  Result<Turn> started = session.start_turn(turn(3));
  EXPECT_EQ(started->end_thinking().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(read_turn(*started).status.ok());
}

TEST(Thinking, a_turn_may_have_a_mode_and_an_effort_of_its_own) {
  LiveStore store(thinking_model());
  {
    Session session = store.create("s");
    ask(session, words(40, 1), turn(6));
    say(session, "think about it");
    TurnOptions thinks = turn(12);
    thinks.thinking = ThinkingMode::kOn;
    thinks.effort = 20;
    const auto prompt =
        thinking_model().render(*session.messages(), {.thinking = true, .effort = 20});
    EXPECT_EQ(*session.count_tokens({}, thinks), static_cast<std::int64_t>(prompt->tokens.size()));
    EXPECT_NE(prompt->text.find("Reasoning Effort: 20 "), std::string::npos);
    const Result<TurnPlan> plan = session.plan(thinks);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->reuse.cause, MissCause::kModeChanged);
    Result<Turn> stopped =
        start_and_cancel(thinking_model(), 8, [&] { return session.start_turn(thinks); });
    const Reply reply = read_turn(*stopped);
    EXPECT_EQ(reply.reuse.cause, MissCause::kModeChanged);
    EXPECT_EQ(reply.reuse.prompt_tokens, static_cast<std::int64_t>(prompt->tokens.size()));
    EXPECT_EQ(reply.reuse.prefilled, plan->reuse.prefilled);
  }
  store.reopen();
  Session session = store.open_session("s");
  const Reply reply = read_turn(session.resume_turn());
  ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
  const auto block = std::ranges::find(reply.events, EventKind::kBlockBegin, &Event::kind);
  ASSERT_NE(block, reply.events.end());
  EXPECT_EQ(block->block_kind, BlockKind::kReasoning);
  say(session, "thanks");
  const auto back = thinking_model().render(*session.messages());
  EXPECT_EQ(*session.count_tokens(), static_cast<std::int64_t>(back->tokens.size()));
}

TEST(Thinking, an_answer_to_a_task_begins_with_text) {
  LiveStore store(thinking_model());
  Session session = store.create("s", {.thinking = true});
  for (const char* task : {"title", "action"}) {
    Message message = Message::user("Who won the match?");
    message.task = task;
    ASSERT_TRUE(session.append(message).ok());
    const Reply reply = read_turn(session.start_turn(turn(5)));
    const auto block = std::ranges::find(reply.events, EventKind::kBlockBegin, &Event::kind);
    ASSERT_NE(block, reply.events.end());
    EXPECT_EQ(block->block_kind, BlockKind::kText);
  }
}

// The format drops the reasoning of an earlier answer: the prompt goes on without it, what it costs
// is said, and the blocks with it stay for who comes back.
TEST(Thinking, dropped_by_the_format_stays_on_a_branch_of_its_own) {
  LiveStore store(thinking_model());
  {
    Session session = store.create("s", {.thinking = true});
    const Reply first = ask(session, words(40, 1), turn(150));
    const auto plan = [&] {
      say(session, "and then " + words(10, 2));
      return *session.plan(turn(4));
    }();
    const Reply second = read_turn(session.start_turn(turn(4)));
    EXPECT_EQ(second.reuse.cause, MissCause::kReasoningDropped);
    EXPECT_EQ(plan.reuse.cause, MissCause::kReasoningDropped);
    EXPECT_LT(second.reuse.prompt_tokens, first.usage.context_used);
    EXPECT_EQ(second.reuse.lost_tokens, plan.reuse.lost_tokens);
    ASSERT_EQ(session.marks()->size(), 1u);
    EXPECT_EQ(session.marks()->at(0).name, "reasoning kept");
  }
  ASSERT_TRUE(store.store().collect({.branches = true}).ok());
  store.reopen();
  Session session = store.open_session("s");
  const auto messages = session.messages();
  ASSERT_TRUE(session.rewind(messages->at(1).event).ok());
  const Reply back = read_turn(session.start_turn(going_on(4)));
  EXPECT_GE(back.reuse.prompt_tokens - back.reuse.prefilled, back.reuse.prompt_tokens / 128 * 128);
  EXPECT_GT(back.reuse.from_disk, 128);
}

// --- Counting.

TEST(Prompt, is_rendered_and_counted_by_message_without_the_model) {
  std::vector<Message> messages = {Message::system("rules"), Message::user("hello"),
                                   Message::user("you")};
  const auto prompt = live_model().render(messages);
  ASSERT_TRUE(prompt.ok());
  ASSERT_EQ(prompt->message_tokens.size(), 3u);
  std::int64_t sum = 1;  // begin of sentence
  for (const std::int64_t n : prompt->message_tokens) sum += n;
  EXPECT_EQ(sum, static_cast<std::int64_t>(prompt->tokens.size()));
  EXPECT_EQ(*live_model().detokenize(prompt->tokens), prompt->text);
  EXPECT_NE(prompt->text.find("hello\n\nyou"), std::string::npos);
  EXPECT_EQ(live_model().render(messages, {.thinking = true, .effort = 101}).status().code(),
            StatusCode::kInvalidArgument);

  LiveStore store;
  Session session = store.create("s");
  EXPECT_EQ(*session.count_tokens(messages), static_cast<std::int64_t>(prompt->tokens.size()));
  for (const Message& message : messages) ASSERT_TRUE(session.append(message).ok());
  EXPECT_EQ(*session.count_tokens(), static_cast<std::int64_t>(prompt->tokens.size()));
  EXPECT_EQ(read_turn(session.start_turn(turn(2))).reuse.prompt_tokens,
            static_cast<std::int64_t>(prompt->tokens.size()));
}

// --- Results of calls.

TEST(ToolResult, is_refused_unless_its_call_is_pending) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "do both");
  const Status early = session.append(Message::tool_result("call_a", "1"));
  EXPECT_EQ(early.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(early.message().find("'call_a'"), std::string::npos);
  ASSERT_TRUE(
      session.append(test::called(live_model(), "", {{"call_a", "f", "{}"}, {"call_b", "g", "{}"}}))
          .ok());
  const Status unknown = session.append(Message::tool_result("call_x", "1"));
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.hint(), "pending calls: call_a (f), call_b (g)");
  ASSERT_TRUE(session.append(Message::tool_result("call_b", "2")).ok());
  const Status twice = session.append(Message::tool_result("call_b", "2"));
  EXPECT_EQ(twice.hint(), "pending calls: call_a (f)");
  // As blocks of one user message, and as a list of parts.
  ASSERT_TRUE(session
                  .append_json(R"({"role": "user", "content": [{"type": "tool_result",
                      "tool_use_id": "call_a", "content": [{"type": "text", "text": "1"},
                      {"type": "text", "text": "one"}]}]})")
                  .ok());
  EXPECT_EQ(session.append(Message::tool_result("call_a", "1")).code(),
            StatusCode::kInvalidArgument);
  const auto prompt = live_model().render(*session.messages());
  EXPECT_NE(
      prompt->text.find("<tool_result>1\n\none</tool_result>\n\n<tool_result>2</tool_result>"),
      std::string::npos);
  EXPECT_EQ(session.info().n_events, 4);
}

// --- Plans.

TEST(Plan, is_made_while_other_sessions_run) {
  LiveStore store;
  Session busy = store.create("busy"), idle = store.create("idle");
  ask(idle, words(150, 1), turn(4));
  say(idle, "more");
  say(busy, words(200, 2));
  Result<Turn> running = busy.start_turn(turn(60));
  ASSERT_TRUE(running.ok());
  for (int i = 0; i < 10; ++i) {
    const Result<TurnPlan> plan = idle.plan(turn(4));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(plan->reuse.cause, MissCause::kNewTokens);
    EXPECT_GT(plan->memory_bytes, 0);
  }
  EXPECT_TRUE(read_turn(*running).status.ok());
  const TurnPlan plan = *idle.plan(turn(4));
  const Reply reply = read_turn(idle.start_turn(turn(4)));
  EXPECT_EQ(plan.reuse.prefilled, reply.reuse.prefilled);
  EXPECT_EQ(plan.reuse.from_memory, reply.reuse.from_memory);
  EXPECT_GT(plan.prefill_ms, 0);
}

// From disk too: what the plan reads from the index is what the restore finds.
TEST(Plan, of_a_session_on_disk_is_kept) {
  LiveStore store;
  for (const bool has_tail : {true, false}) {
    SCOPED_TRACE(has_tail);
    const std::string name = has_tail ? "tail" : "blocks";
    {
      Session session = store.create(name);
      ask(session, words(150, has_tail ? 1 : 2), turn(4));
      say(session, "more");
    }
    if (!has_tail) store.lose_tail(name);
    store.reopen();
    Session session = store.open_session(name);
    const Result<TurnPlan> plan = session.plan(turn(4));
    ASSERT_TRUE(plan.ok());
    const Reply reply = read_turn(session.start_turn(turn(4)));
    EXPECT_EQ(plan->reuse.from_disk, reply.reuse.from_disk);
    EXPECT_EQ(plan->reuse.prefilled, reply.reuse.prefilled);
    EXPECT_EQ(plan->reuse.replayed, reply.reuse.replayed);
    EXPECT_EQ(plan->reuse.tail_restored, has_tail);
    EXPECT_EQ(plan->reuse.cause, reply.reuse.cause);
    EXPECT_EQ(plan->reuse.lost_tokens, reply.reuse.lost_tokens);
    // But for the descriptors of blocks, which the index does not count.
    EXPECT_NEAR(static_cast<double>(plan->reuse.bytes_read),
                static_cast<double>(reply.reuse.bytes_read),
                static_cast<double>(reply.reuse.bytes_read) / 20);
  }
}

// --- Volatile text.

TEST(Volatile, text_costs_its_own_tokens_only) {
  LiveStore store;
  Session session = store.create("s");
  const auto with_date = [](const std::string& text, const std::string& date) {
    Message message = Message::user(text);
    message.content.push_back({ContentBlock::Kind::kText, date, {}, /*is_volatile=*/true});
    return message;
  };
  ASSERT_TRUE(session.append(Message::system("rules " + words(20, 1))).ok());
  std::int64_t known = 0;
  std::size_t n_reminders = 0;
  const char* const dates[] = {"Monday", "Monday", "Tuesday", "Tuesday", "Monday"};
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(session.append(with_date(words(5, static_cast<unsigned>(i)), dates[i])).ok());
    const Reply reply = read_turn(session.start_turn(turn(5)));
    EXPECT_EQ(reply.reuse.from_memory, std::max<std::int64_t>(known - 1, 0));
    EXPECT_EQ(reply.reuse.lost_tokens, 0);
    known = reply.usage.context_used;
    n_reminders += i == 0 || i == 2 || i == 4;
    const auto messages = session.messages();
    EXPECT_EQ(messages->size(), 1 + 2 * static_cast<std::size_t>(i + 1) + n_reminders);
    EXPECT_EQ(messages->at(1).role, Role::kLatestReminder);
  }
}

}  // namespace
}  // namespace cairn
