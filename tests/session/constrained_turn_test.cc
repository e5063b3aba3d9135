// Turns with output rules on the tiny model: what they say meets the rules, whatever interrupts
// them, and it does not depend on what was kept or who else runs.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "engine/python_json.h"
#include "engine/tool_schema.h"
#include "tests/session/live_session.h"
#include "tests/support/schema_text.h"

namespace cairn {
namespace {

using test::ask;
using test::last_tokens;
using test::live_model;
using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::say;

constexpr char kTools[] = R"([
 {"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{
   "path":{"type":"string","pattern":"^[a-z/]{1,6}$"},"text":{"type":"string","maxLength":8},
   "mode":{"type":"integer","minimum":0,"maximum":511},
   "tags":{"type":"array","items":{"enum":["x","yz"]},"maxItems":2}},
   "required":["path","text"],"additionalProperties":false}}},
 {"type":"function","function":{"name":"set","parameters":{"type":"object","properties":{
   "on":{"type":["boolean","integer"],"minimum":10,"maximum":40}},"required":["on"]}}},
 {"type":"function","function":{"name":"stop"}}])";
constexpr char kFormat[] =
    R"({"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":99},
        "s":{"type":"string","maxLength":6}},"required":["n","s"],"additionalProperties":false})";

TurnOptions forced_call(const std::string& tool, std::uint64_t seed) {
  return {.sampling = test::sampled(seed),
          .max_tokens = 1000,
          .output = {.tool_choice = ToolChoice::kNamed, .tool_name = tool}};
}

TurnOptions formatted(std::uint64_t seed) {
  return {.sampling = test::sampled(seed),
          .max_tokens = 600,
          .output = {.response_format_json = kFormat}};
}

Session with_tools(LiveStore& store, const std::string& name) {
  Session session = store.create(name);
  EXPECT_TRUE(session.append(Message::system("Use tools.", kTools)).ok());
  return session;
}

const tests::SchemaText& arguments_schema(const std::string& tool) {
  static const std::map<std::string, tests::SchemaText> schemas = [] {
    std::map<std::string, tests::SchemaText> schemas;
    const auto functions = engine::parse_tools(kTools);
    for (const engine::JsonValue& function : *functions) {
      const engine::JsonValue* parameters = function.find("parameters");
      if (parameters == nullptr) continue;
      schemas.emplace(function.find("name")->text,
                      *tests::SchemaText::compile(engine::to_python_json(*parameters)));
    }
    return schemas;
  }();
  return schemas.at(tool);
}

void check_call(const Session& session, const Reply& reply, const std::string& tool) {
  EXPECT_EQ(reply.end_reason, EndReason::kToolCalls) << reply.status.to_string() << reply.text();
  for (const Event& event : reply.events) {
    EXPECT_FALSE(event.malformed);
  }
  const auto messages = session.messages();
  ASSERT_TRUE(messages.ok());
  const Message& answer = messages->back();
  EXPECT_EQ(test::text_of(answer), "");
  ASSERT_EQ(answer.tool_calls.size(), 1u);
  const ToolCall& call = answer.tool_calls[0];
  EXPECT_EQ(call.name, tool);
  EXPECT_TRUE(arguments_schema(tool).accepts(call.arguments_json)) << call.arguments_json;
}

TEST(ConstrainedTurn, forced_calls_meet_their_schema) {
  LiveStore store;
  for (const std::string tool : {"write_file", "set"}) {
    Session session = with_tools(store, tool);
    check_call(session, ask(session, test::words(10, 1), forced_call(tool, 1)), tool);
  }
}

TEST(ConstrainedTurn, a_response_format_is_met) {
  const auto schema = tests::SchemaText::compile(kFormat);
  ASSERT_TRUE(schema.ok());
  LiveStore store;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Session session = store.create(std::to_string(seed));
    const Reply reply = ask(session, test::words(10, 1), formatted(seed));
    EXPECT_EQ(reply.end_reason, EndReason::kStop);
    EXPECT_TRUE(schema->accepts(reply.text())) << reply.text();
  }
}

TEST(ConstrainedTurn, greedy_and_penalised_sampling_follow_the_rules_too) {
  const auto schema = tests::SchemaText::compile(kFormat);
  LiveStore store;
  int n = 0;
  for (const SamplingParams& sampling : {test::greedy(), test::penalised(3)}) {
    Session session = store.create(std::to_string(n++));
    TurnOptions options = formatted(1);
    options.sampling = sampling;
    const Reply reply = ask(session, test::words(10, 1), options);
    EXPECT_EQ(reply.end_reason, EndReason::kStop) << reply.text();
    EXPECT_TRUE(schema->accepts(reply.text())) << reply.text();
  }
}

TEST(ConstrainedTurn, one_stopped_anywhere_and_resumed_says_the_same) {
  LiveStore unbroken;
  Session whole = with_tools(unbroken, "whole");
  const Reply expected = ask(whole, test::words(10, 1), forced_call("set", 3));
  check_call(whole, expected, "set");
  const auto n_tokens = static_cast<int>(last_tokens(whole).size());
  LiveStore store;
  int n_resumed = 0;
  for (int n_steps = 4; n_steps < n_tokens; n_steps += n_tokens / 4 + 1) {
    const std::string name = std::to_string(n_steps);
    std::optional<Session> session = with_tools(store, name);
    say(*session, test::words(10, 1));
    const Reply before = read_turn(test::start_and_cancel(
        live_model(), n_steps, [&] { return session->start_turn(forced_call("set", 3)); }));
    ASSERT_EQ(before.end_reason, EndReason::kCancelled);
    if (n_steps % 2 == 0) {
      session.reset();
      store.reopen();
      session = store.open_session(name);
    }
    const Reply after = read_turn(session->resume_turn());
    EXPECT_EQ(last_tokens(*session), last_tokens(whole));
    EXPECT_EQ(after.text(), expected.text());
    check_call(*session, after, "set");
    ++n_resumed;
  }
  EXPECT_GE(n_resumed, 3);
}

constexpr char kChildStore[] = "CAIRN_TEST_CHILD_STORE";

// What the test below runs in a process of its own: tells each delivered piece to the output.
TEST(ConstrainedTurnChild, begins_a_turn_and_is_killed) {
  const char* path = std::getenv(kChildStore);
  if (path == nullptr) GTEST_SKIP() << "runs as a child of another test";
  const Result<Store> store = Store::open(test::live_runtime(), path, test::run_options());
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  Result<Session> session = Session::open(live_model(), *store, "s");
  ASSERT_TRUE(session.ok());
  Result<Turn> turn = session->start_turn(forced_call("set", 3));
  ASSERT_TRUE(turn.ok());
  for (;;) {
    const Result<Event> event = turn->next();
    if (!event.ok()) break;
    if (event->kind != EventKind::kBlockBytes) continue;
    ASSERT_EQ(write(STDERR_FILENO, "x", 1), 1);
  }
  while (true) pause();
}

// Starts the child and kills it when it has delivered `n_pieces`.
void run_and_kill(const std::string& store, int n_pieces) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(fds[1], STDERR_FILENO);
    close(fds[0]);
    setenv(kChildStore, store.c_str(), 1);
    execl("/proc/self/exe", "constrained_turn_test", "--gtest_filter=ConstrainedTurnChild.*",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(fds[1]);
  char piece = 0;
  for (int i = 0; i < n_pieces && read(fds[0], &piece, 1) == 1; ++i) {
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(fds[0]);
}

TEST(ConstrainedTurn, one_killed_and_resumed_says_the_same) {
  LiveStore unbroken;
  Session whole = with_tools(unbroken, "whole");
  const Reply expected = ask(whole, test::words(10, 1), forced_call("set", 3));
  LiveStore store;
  {
    Session session = with_tools(store, "s");
    say(session, test::words(10, 1));
  }
  store.close();
  run_and_kill(store.path(), 1);
  store.open();
  Session session = store.open_session("s");
  const Reply after = read_turn(session.resume_turn());
  EXPECT_EQ(last_tokens(session), last_tokens(whole));
  EXPECT_EQ(after.text(), expected.text());
  check_call(session, after, "set");
}

TEST(ConstrainedTurn, what_was_kept_and_who_else_runs_change_nothing) {
  constexpr std::uint64_t kSeeds = 3;
  LiveStore store;
  std::vector<std::vector<TokenId>> alone;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Session session = store.create("alone" + std::to_string(seed));
    ask(session, test::words(10, 1), formatted(seed));
    alone.push_back(last_tokens(session));
  }
  std::vector<Session> sessions;
  std::vector<Turn> turns;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    sessions.push_back(store.create(std::to_string(seed)));
    say(sessions.back(), test::words(10, 1));
  }
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto turn = sessions[seed].start_turn(formatted(seed));
    ASSERT_TRUE(turn.ok());
    turns.push_back(std::move(*turn));
  }
  for (Turn& turn : turns) read_turn(turn);
  for (std::size_t i = 0; i < kSeeds; ++i) EXPECT_EQ(last_tokens(sessions[i]), alone[i]);
}

TEST(ConstrainedTurn, rules_that_cannot_be_followed_do_not_start_a_turn) {
  LiveStore store;
  Session session = store.create("s");
  say(session, "hello");
  const std::uint64_t n_events = session.info().n_events;
  const auto refusal = [&](const OutputRules& rules) {
    const auto turn = session.start_turn({.output = rules});
    EXPECT_FALSE(session.info().turn_open);
    EXPECT_EQ(session.info().n_events, n_events);
    return turn.status();
  };
  const Status unsupported =
      refusal({.response_format_json = R"({"properties":{"a":{"contains":{}}}})"});
  EXPECT_EQ(unsupported.code(), StatusCode::kUnsupported);
  EXPECT_NE(unsupported.message().find("#/properties/a/contains: keyword 'contains'"),
            std::string::npos)
      << unsupported.message();
  EXPECT_EQ(refusal({.response_format_json = "{"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({.response_format_json = "false"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({.tool_choice = ToolChoice::kRequired}).code(), StatusCode::kInvalidArgument);
  const Reply reply = read_turn(session.start_turn({.max_tokens = 4}));
  EXPECT_TRUE(reply.status.ok());
}

TEST(ConstrainedTurn, an_answer_that_was_begun_goes_on_under_the_rules) {
  const auto schema = tests::SchemaText::compile(kFormat);
  LiveStore store;
  Session session = store.create("s");
  say(session, "hello");
  Message begun;
  begun.role = Role::kAssistant;
  begun.leave_open = true;
  begun.content.push_back({ContentBlock::Kind::kText, "{\"s\": \"ab", {}});
  ASSERT_TRUE(session.append(begun).ok());
  TurnOptions options = formatted(5);
  options.continue_answer = true;
  const Reply reply = read_turn(session.start_turn(options));
  EXPECT_EQ(reply.end_reason, EndReason::kStop);
  EXPECT_TRUE(reply.text().starts_with("{\"s\": \"ab")) << reply.text();
  EXPECT_TRUE(schema->accepts(reply.text())) << reply.text();

  Session other = store.create("other");
  say(other, "hello");
  begun.content[0].text = "Well, ";
  ASSERT_TRUE(other.append(begun).ok());
  EXPECT_EQ(other.start_turn(options).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(other.info().turn_open);
}

TEST(ConstrainedTurn, reasoning_that_a_limit_ends_leads_to_the_format) {
  const auto schema = tests::SchemaText::compile(kFormat);
  LiveStore store;
  SessionOptions thinking;
  thinking.thinking = true;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Session session = store.create(std::to_string(seed), thinking);
    TurnOptions options = formatted(seed);
    options.limits.reasoning_tokens = 5 + static_cast<std::int32_t>(seed);
    const Reply reply = ask(session, "hello", options);
    EXPECT_EQ(reply.end_reason, EndReason::kStop) << reply.status.to_string();
    ASSERT_EQ(reply.blocks.size(), 2u);
    EXPECT_TRUE(schema->accepts(reply.blocks[1])) << reply.blocks[1];
  }
}

TEST(ConstrainedTurn, a_limit_may_end_it_in_the_middle) {
  LiveStore store;
  Session session = with_tools(store, "s");
  TurnOptions options = forced_call("set", 1);
  options.max_tokens = 40;
  const Reply reply = ask(session, "hello", options);
  EXPECT_EQ(reply.end_reason, EndReason::kLength);
  EXPECT_EQ(reply.usage.output_tokens, 40);
}

}  // namespace
}  // namespace cairn
