// Conversations: what a session accepts, how its turns end, what sessions share.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "tests/session/live_session.h"

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
using test::text_of;
using test::words;

StatusCode code_of(const Status& status) { return status.code(); }
template <class T>
StatusCode code_of(const Result<T>& result) {
  return result.status().code();
}

// --- A conversation.

TEST(Session, an_answer_is_what_its_events_said) {
  LiveStore store;
  Session session = store.create("talk");
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Reply reply =
        ask(session, words(10, 1), {.sampling = test::sampled(seed), .max_tokens = 40});
    EXPECT_TRUE(reply.status.ok());
    const auto messages = session.messages();
    ASSERT_TRUE(messages.ok());
    EXPECT_EQ(messages->size(), 2 * seed);
    EXPECT_EQ(messages->back().role, Role::kAssistant);
    EXPECT_EQ(messages->back().reasoning + text_of(messages->back()), reply.text());
    EXPECT_EQ(static_cast<std::int64_t>(messages->back().sampled_tokens.size()),
              reply.usage.output_tokens);
    EXPECT_EQ(reply.usage.context_used,
              reply.usage.reuse.prompt_tokens + reply.usage.output_tokens);
    EXPECT_EQ(reply.usage.context_size, test::kTinyContext);
    EXPECT_GT(reply.usage.bytes_written, 0);
    EXPECT_FALSE(session.info().turn_open);
  }
}

TEST(Session, reasoning_is_a_block_of_its_own_kind) {
  LiveStore store;
  Session session = store.create("think", {.thinking = true});
  const Reply reply = ask(session, "why", {.sampling = test::sampled(5), .max_tokens = 30});
  ASSERT_FALSE(reply.blocks.empty());
  const auto messages = session.messages();
  EXPECT_EQ(messages->back().reasoning, reply.blocks[0]);
  EXPECT_GT(reply.usage.reasoning_tokens, 0);
}

TEST(Session, a_later_turn_extends_what_is_in_memory) {
  LiveStore store;
  Session session = store.create("talk");
  const Reply first = ask(session, words(50, 1), {.sampling = greedy(), .max_tokens = 12});
  EXPECT_EQ(first.reuse.from_memory + first.reuse.from_disk, 0);
  EXPECT_EQ(first.reuse.cause, MissCause::kNewTokens);
  EXPECT_EQ(first.reuse.first_difference, -1);
  const Reply second = ask(session, "more", {.sampling = greedy(), .max_tokens = 12});
  // The last token sampled was never fed.
  EXPECT_EQ(second.reuse.from_memory, first.usage.context_used - 1);
  EXPECT_EQ(second.reuse.from_disk, 0);
  EXPECT_EQ(second.reuse.replayed, 0);
  EXPECT_EQ(second.reuse.cause, MissCause::kNewTokens);
  EXPECT_TRUE(second.reuse.exact);
}

TEST(Session, equal_seeds_give_equal_answers_and_others_do_not) {
  LiveStore store;
  std::vector<std::vector<TokenId>> answers;
  for (const std::uint64_t seed : {7, 7, 8}) {
    Session session = store.create("s" + std::to_string(answers.size()));
    ask(session, words(20, 2), {.sampling = test::sampled(seed), .max_tokens = 24});
    answers.push_back(last_tokens(session));
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_NE(answers[0], answers[2]);
}

// --- The end of a turn.

TEST(Session, max_tokens_ends_a_turn_and_the_next_one_goes_on_from_it) {
  LiveStore store;
  Session session = store.create("short");
  const TurnOptions options = {.sampling = test::sampled(3), .max_tokens = 5};
  const Reply first = ask(session, words(20, 1), options);
  ASSERT_EQ(first.end_reason, EndReason::kLength);
  EXPECT_EQ(first.usage.output_tokens, 5);
  EXPECT_EQ(last_tokens(session).size(), 5u);
  EXPECT_NE(last_tokens(session).back(), live_model().state()->eos());
  const Reply second = ask(session, "go on", options);
  EXPECT_EQ(second.reuse.from_memory, first.usage.context_used - 1);
  // Of the new tokens the first is the one never fed, the second the end of the sentence.
  EXPECT_EQ(second.reuse.first_difference, -1);
  EXPECT_EQ(second.reuse.cause, MissCause::kNewTokens);
  EXPECT_TRUE(second.status.ok());
  EXPECT_EQ(session.messages()->size(), 4u);
}

TEST(Session, the_end_of_the_context_ends_a_turn) {
  LiveStore store;
  const Model small = *Model::open(test::live_runtime(), test::kTinyA, {.max_context = 128});
  Session session = *Session::create(small, store.store(), "small");
  say(session, words(20, 1));
  const Reply reply =
      read_turn(session.start_turn({.sampling = test::sampled(1), .max_tokens = 4000}));
  // The answer does not end by itself within the few tokens that are left.
  ASSERT_EQ(reply.end_reason, EndReason::kLength);
  EXPECT_EQ(reply.usage.context_used, 128);
  EXPECT_EQ(reply.usage.context_size, 128);
  const Status more = session.append(Message::user("more"));
  ASSERT_EQ(more.code(), StatusCode::kContextFull);
  EXPECT_NE(more.message().find("128"), std::string_view::npos);
  EXPECT_FALSE(session.info().turn_open);
}

TEST(Session, a_message_longer_than_the_context_is_refused_with_both_numbers) {
  LiveStore store;
  Session session = store.create("long");
  const std::string text = words(6000, 1);
  const Status refused = session.append(Message::user(text));
  ASSERT_EQ(refused.code(), StatusCode::kContextFull);
  const std::string message(refused.message());
  EXPECT_NE(message.find(std::to_string(test::kTinyContext)), std::string::npos) << message;
  const std::size_t n_prompt =
      std::strtoul(message.c_str() + message.find("have ") + 5, nullptr, 10);
  const std::size_t n_text = live_model().tokenize(text).size();
  EXPECT_GT(n_prompt, n_text) << message;
  EXPECT_LT(n_prompt, n_text + 100) << message;
  // Nothing was logged: the session goes on with what does fit.
  EXPECT_TRUE(session.messages()->empty());
  say(session, "hello");
  EXPECT_TRUE(read_turn(session.start_turn({.max_tokens = 3})).status.ok());
}

// --- What is refused.

TEST(Session, nothing_to_answer_is_refused) {
  LiveStore store;
  Session session = store.create("empty");
  EXPECT_EQ(code_of(session.start_turn()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(session.resume_turn()), StatusCode::kNotFound);
  ask(session, "hello", {.sampling = greedy(), .max_tokens = 3});
  const Result<Turn> again = session.start_turn();
  EXPECT_EQ(code_of(again), StatusCode::kInvalidArgument);
  EXPECT_FALSE(again.status().hint().empty());
  EXPECT_EQ(code_of(session.resume_turn()), StatusCode::kNotFound);
}

TEST(Session, a_running_turn_makes_its_session_busy) {
  LiveStore store;
  Session session = store.create("busy");
  say(session, words(100, 1));
  Result<Turn> turn = session.start_turn({.sampling = greedy(), .max_tokens = 10});
  ASSERT_TRUE(turn.ok());
  {
    const test::HeldStrand held(live_model());  // the turn cannot end meanwhile, or has ended
    if (session.info().turn_open) {
      EXPECT_EQ(code_of(session.append(Message::user("no"))), StatusCode::kBusy);
      EXPECT_EQ(code_of(session.start_turn()), StatusCode::kBusy);
      EXPECT_EQ(code_of(session.resume_turn()), StatusCode::kBusy);
    }
  }
  read_turn(*turn);
  EXPECT_EQ(session.messages()->size(), 2u);
  EXPECT_TRUE(session.append(Message::user("yes")).ok());
}

TEST(Session, sampling_values_out_of_range_are_refused) {
  LiveStore store;
  Session session = store.create("values");
  say(session, "hello");
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<TurnOptions> bad = {
      {.sampling = {.temperature = -1}},
      {.sampling = {.temperature = kNan}},
      {.sampling = {.top_k = -1}},
      {.sampling = {.top_p = 0}},
      {.sampling = {.top_p = 1.5f}},
      {.sampling = {.min_p = 2}},
      {.sampling = {.repetition_penalty = 0}},
      {.sampling = {.frequency_penalty = kNan}},
      {.sampling = {.presence_penalty = 1e9f}},
      {.sampling = {.penalty_window = -1}},
      {.max_tokens = 0},
      {.max_tokens = -5},
  };
  for (const TurnOptions& options : bad) {
    const Result<Turn> turn = session.start_turn(options);
    EXPECT_EQ(code_of(turn), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(session.info().turn_open);
  EXPECT_TRUE(read_turn(session.start_turn({.max_tokens = 2})).status.ok());
}

TEST(Session, messages_that_the_format_cannot_say_are_not_logged) {
  LiveStore store;
  Session session = store.create("messages");
  Message call;
  call.role = Role::kAssistant;
  call.tool_calls = {{"id", "na\"me", "{}"}};
  EXPECT_EQ(code_of(session.append(call)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(session.append(Message::system("x", "{not json"))),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(session.append_json("{\"role\": \"nobody\"}")), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(session.append_json("")), StatusCode::kInvalidArgument);
  EXPECT_EQ(session.messages()->size(), 0u);
  EXPECT_TRUE(session.append_json(R"({"role": "user", "content": "hello"})").ok());
  EXPECT_EQ(text_of(session.messages()->at(0)), "hello");
}

TEST(Session, a_message_with_an_image_is_refused_and_not_logged) {
  LiveStore store;
  Session session = store.create("image");
  const Status refused = session.append_json(
      R"({"role": "user", "content": [{"type": "text", "text": "what is this"},
          {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]})");
  EXPECT_EQ(code_of(refused), StatusCode::kUnsupported);
  EXPECT_NE(refused.message().find("content[1]"), std::string_view::npos) << refused.message();
  EXPECT_EQ(session.messages()->size(), 0u);
}

TEST(Session, names_and_options_have_rules) {
  LiveStore store;
  const auto create = [&](const std::string& name, const SessionOptions& options = {}) {
    return code_of(Session::create(live_model(), store.store(), name, options));
  };
  EXPECT_EQ(create(""), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(std::string(201, 'a')), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(std::string(200, 'a')), StatusCode::kOk);
  EXPECT_EQ(create("line\nbreak"), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("\xff"), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("ü"), StatusCode::kOk);
  EXPECT_EQ(create("ü"), StatusCode::kAlreadyExists);
  EXPECT_EQ(create("e", {.effort = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("e", {.effort = 101}), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("e", {.restore = static_cast<RestorePolicy>(7)}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(Session::open(live_model(), store.store(), "absent")), StatusCode::kNotFound);
  EXPECT_EQ(store.store().list()->size(), 2u);
}

TEST(Session, a_session_is_open_once) {
  LiveStore store;
  {
    const Session session = store.create("one");
    const Status twin = Session::open(live_model(), store.store(), "one").status();
    EXPECT_EQ(code_of(twin), StatusCode::kBusy);
    EXPECT_NE(twin.message().find("session one"), std::string_view::npos) << twin.message();
    EXPECT_EQ(code_of(store.store().remove("one")), StatusCode::kBusy);
  }
  EXPECT_TRUE(Session::open(live_model(), store.store(), "one").ok());
  EXPECT_TRUE(store.store().remove("one").ok());
  EXPECT_EQ(code_of(Session::open(live_model(), store.store(), "one")), StatusCode::kNotFound);
}

TEST(Session, another_model_is_refused) {
  LiveStore store;
  { const Session session = store.create("made by tiny-a"); }
  const Model other_numerics =
      *Model::open(test::live_runtime(), test::kTinyA, {.numerics = Numerics::kF32});
  const Model other_weights = *Model::open(test::live_runtime(), test::kTinyB);
  for (const Model& other : {other_numerics, other_weights}) {
    const auto session = Session::open(other, store.store(), "made by tiny-a");
    EXPECT_EQ(code_of(session), StatusCode::kModelMismatch);
    EXPECT_FALSE(session.status().hint().empty());
  }
  // How the model computes, not what, may differ.
  const Model other_chunks = *Model::open(test::live_runtime(), test::kTinyA, {.prefill_chunk = 7});
  EXPECT_TRUE(Session::open(other_chunks, store.store(), "made by tiny-a").ok());
}

// --- An interrupted turn.

// A session whose turn was cancelled after some tokens.
Session interrupted(LiveStore& store, const std::string& name, const SessionOptions& options = {}) {
  Session session = store.create(name, options);
  say(session, words(20, 1));
  Result<Turn> turn = test::start_and_cancel(live_model(), 12, [&] {
    return session.start_turn({.sampling = test::sampled(1), .max_tokens = 50});
  });
  EXPECT_EQ(read_turn(*turn).end_reason, EndReason::kCancelled);
  EXPECT_TRUE(session.info().turn_open);
  return session;
}

TEST(Session, an_interrupted_turn_keeps_the_next_one_from_starting) {
  LiveStore store;
  Session session = interrupted(store, "open");
  const Result<Turn> turn = session.start_turn();
  EXPECT_EQ(code_of(turn), StatusCode::kInvalidArgument);
  EXPECT_NE(turn.status().hint().find("resume"), std::string_view::npos);
  EXPECT_EQ(session.messages()->size(), 1u);
}

TEST(Session, appending_closes_an_interrupted_turn_and_keeps_what_it_said) {
  for (const bool thinking : {false, true}) {
    LiveStore store;
    std::vector<TokenId> said;
    {
      Session session = interrupted(store, "closed", {.thinking = thinking});
      say(session, "something else");
      EXPECT_FALSE(session.info().turn_open);
      const auto messages = session.messages();
      ASSERT_EQ(messages->size(), 3u);
      said = messages->at(1).sampled_tokens;
      EXPECT_GT(said.size(), 3u);
      EXPECT_LT(said.size(), 50u);
      EXPECT_FALSE((thinking ? messages->at(1).reasoning : text_of(messages->at(1))).empty());
      EXPECT_EQ(code_of(session.resume_turn()), StatusCode::kNotFound);
      EXPECT_TRUE(read_turn(session.start_turn({.max_tokens = 3})).status.ok());
    }
    store.reopen();
    const Session session = store.open_session("closed");
    EXPECT_EQ(session.messages()->size(), 4u);
    EXPECT_EQ(session.messages()->at(1).sampled_tokens, said);
  }
}

TEST(Session, a_turn_interrupted_before_its_first_token_can_be_closed) {
  LiveStore store;
  Session session = store.create("nothing said");
  say(session, words(20, 1));
  Result<Turn> turn = test::start_and_cancel(live_model(), 0, [&] { return session.start_turn(); });
  EXPECT_EQ(read_turn(*turn).end_reason, EndReason::kCancelled);
  say(session, "hello?");
  EXPECT_EQ(session.messages()->size(), 3u);
  EXPECT_TRUE(read_turn(session.start_turn({.max_tokens = 3})).status.ok());
}

// --- Sharing.

constexpr int kSystemWords = 110;  // more than two blocks

// The answers of a session with a long system message to three messages.
class Conversation {
 public:
  Conversation(LiveStore& store, const std::string& name, unsigned number)
      : session_(store.create(name)), number_(number) {
    EXPECT_TRUE(session_.append(Message::system(words(kSystemWords, 99))).ok());
  }
  Reply next() {
    const Reply reply = ask(session_, words(15, 1000 * number_ + ++n_turns_),
                            {.sampling = test::sampled(number_), .max_tokens = 20});
    EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
    tokens_.push_back(last_tokens(session_));
    return reply;
  }
  const std::vector<std::vector<TokenId>>& tokens() const { return tokens_; }

 private:
  Session session_;
  unsigned number_, n_turns_ = 0;
  std::vector<std::vector<TokenId>> tokens_;
};

TEST(Session, a_shared_system_message_is_computed_once) {
  LiveStore shared, alone;
  Conversation first(shared, "first", 1), second(shared, "second", 2), other(alone, "second", 2);
  first.next();
  const Reply reply = second.next();
  EXPECT_EQ(reply.reuse.from_memory, 2 * 128);
  EXPECT_EQ(reply.reuse.from_disk, 0);
  EXPECT_GT(reply.reuse.replayed, 0);
  EXPECT_FALSE(reply.reuse.tail_restored);
  EXPECT_TRUE(reply.reuse.exact);
  EXPECT_EQ(reply.reuse.cause, MissCause::kReplayNeeded);
  EXPECT_EQ(other.next().reuse.from_disk, 0);
  EXPECT_EQ(second.tokens(), other.tokens());
}

TEST(Session, sessions_turn_by_turn_say_what_they_say_alone) {
  LiveStore together, alone;
  Conversation a(together, "a", 1), b(together, "b", 2), c(together, "c", 3);
  for (int turn = 0; turn < 2; ++turn) {
    a.next();
    b.next();
    c.next();
  }
  unsigned number = 1;
  for (const Conversation* interleaved : {&a, &b, &c}) {
    LiveStore store;
    Conversation by_itself(store, "x", number++);
    for (int turn = 0; turn < 2; ++turn) by_itself.next();
    EXPECT_EQ(by_itself.tokens(), interleaved->tokens());
  }
}

TEST(Session, different_prompts_share_nothing) {
  LiveStore store;
  Conversation first(store, "first", 1);
  first.next();
  Session other = store.create("other");
  const Reply reply = ask(other, words(110, 7), {.sampling = greedy(), .max_tokens = 2});
  EXPECT_EQ(reply.reuse.from_disk, 0);
  EXPECT_EQ(reply.reuse.cause, MissCause::kNewTokens);
}

// --- Thinking.

Message answer_without_tokens(const Message& answer) {
  Message message = answer;
  message.sampled_tokens.clear();
  return message;
}

TEST(Session, reasoning_of_earlier_turns_leaves_the_prompt) {
  LiveStore store;
  Session session = store.create("thinker", {.thinking = true});
  const TurnOptions options = {.sampling = test::sampled(4), .max_tokens = 30};
  const Reply first = ask(session, words(60, 1), options);
  const Reply second = ask(session, "and then", options);
  EXPECT_EQ(second.reuse.cause, MissCause::kReasoningDropped);
  EXPECT_EQ(second.reuse.difference.message, 0);  // the header after the first question
  EXPECT_EQ(second.reuse.difference.stored.substr(0, 2), "th");
  EXPECT_EQ(second.reuse.difference.given.substr(0, 2), "/t");
  EXPECT_GT(second.reuse.first_difference, 128);
  EXPECT_LE(second.reuse.first_difference, first.reuse.prompt_tokens);
  EXPECT_LT(second.reuse.prompt_tokens, first.usage.context_used);
  EXPECT_GT(second.reuse.from_memory, 0);
  EXPECT_NE(second.reuse.detail.find(std::to_string(second.reuse.first_difference)),
            std::string::npos);

  LiveStore fresh;
  Session copy = fresh.create("copy", {.thinking = true});
  const auto messages = session.messages();
  EXPECT_TRUE(copy.append(messages->at(0)).ok());
  EXPECT_TRUE(copy.append(answer_without_tokens(messages->at(1))).ok());
  EXPECT_TRUE(copy.append(messages->at(2)).ok());
  const Reply reply = read_turn(copy.start_turn(options));
  EXPECT_EQ(reply.reuse.prompt_tokens, second.reuse.prompt_tokens);
  EXPECT_EQ(last_tokens(copy), last_tokens(session));
  EXPECT_EQ(reply.text(), second.text());
}

TEST(Session, the_log_survives_a_closed_store) {
  LiveStore store;
  std::vector<Message> before;
  SessionInfo info;
  {
    Session session = store.create("kept", {.thinking = true, .effort = 33});
    EXPECT_TRUE(session.append(Message::system("rules")).ok());
    ask(session, "hello", {.sampling = test::sampled(1), .max_tokens = 9});
    before = *session.messages();
    info = session.info();
  }
  store.reopen();
  const Session session = store.open_session("kept");
  const auto after = session.messages();
  ASSERT_EQ(after->size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after->at(i).role, before[i].role);
    EXPECT_EQ(text_of(after->at(i)), text_of(before[i]));
    EXPECT_EQ(after->at(i).reasoning, before[i].reasoning);
    EXPECT_EQ(after->at(i).sampled_tokens, before[i].sampled_tokens);
  }
  EXPECT_EQ(session.info().id, info.id);
  EXPECT_EQ(session.info().n_events, info.n_events);
  EXPECT_EQ(session.info().n_tokens, info.n_tokens);
  EXPECT_EQ(store.store().list()->at(0).name, "kept");
}

}  // namespace
}  // namespace cairn
