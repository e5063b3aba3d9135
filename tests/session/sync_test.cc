// Whole conversations from clients: what each rewriting that real clients make costs, and what it
// is called.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/session/client_history.h"

namespace cairn {
namespace {

using test::client_history;
using test::greedy;
using test::last_tokens;
using test::LiveStore;
using test::parsed;
using test::read_turn;
using test::Reply;
using test::say;
using test::words;
namespace json = boost::json;

const TurnOptions kShort = {.sampling = greedy(), .max_tokens = 5};

// In fewer and longer steps than other tests want: the prompts are long.
const Model& model() {
  static const Model model =
      *Model::open(test::live_runtime(), test::kTinyA, {.prefill_chunk = 512});
  return model;
}

std::string dated(const std::string& time) {
  return "You are a coding agent.\nCurrent time: " + time + "\n" + words(60, 1);
}

// Two rounds of calls and answers, the results of the first in the wrong order.
void talk(Session& session) {
  ASSERT_TRUE(session.append(Message::system(dated("10:01"), test::three_tools())).ok());
  say(session, "fix the build: " + words(40, 2));
  ASSERT_TRUE(session
                  .append(test::called(model(), "Looking.",
                                       {{"call_a", "read_file", R"({"path": "a.cc", "line": 1.0})"},
                                        {"call_b", "list_dir", R"({"path": "src/\u00e4"})"}}))
                  .ok());
  ASSERT_TRUE(session.append(Message::tool_result("call_b", "x.cc y.cc " + words(50, 3))).ok());
  ASSERT_TRUE(session.append(Message::tool_result("call_a", "int main() {}" + words(50, 4))).ok());
  ASSERT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
  say(session, "and the tests: " + words(40, 5));
  ASSERT_TRUE(session
                  .append(test::called(model(), "",
                                       {{"call_c", "run_tests", R"({"path": "t", "line": 12})"}}))
                  .ok());
  ASSERT_TRUE(session.append(Message::tool_result("call_c", "1 failed " + words(60, 6))).ok());
  ASSERT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
}

// The same through requests of a client whose host declared the changing line.
void talk_by_requests(Session& session, const json::array& history) {
  const SyncOptions declared = {.volatile_lines = {"Current time:"}};
  for (const std::size_t n : {5u, 9u}) {
    json::array request = history;
    request.erase(request.begin() + static_cast<std::ptrdiff_t>(n), request.end());
    ASSERT_TRUE(session.sync(parsed(request), declared).ok());
    ASSERT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
  }
}

json::array without_reminders(const json::array& history) {
  json::array rest;
  for (const json::value& message : history) {
    if (message.as_object().at("role") != "latest_reminder") rest.push_back(message);
  }
  return rest;
}

void append_user(json::array& history, const std::string& text) {
  history.push_back(json::object{{"role", "user"}, {"content", text}});
}

json::object& at(json::array& history, std::size_t i) { return history[i].as_object(); }

// Calls `change` on each call's function object.
void for_each_call(json::array& history, const std::function<void(json::object&)>& change) {
  for (json::value& message : history) {
    if (!message.as_object().contains("tool_calls")) continue;
    for (json::value& call : message.as_object()["tool_calls"].as_array()) change(call.as_object());
  }
}

struct Rewriting {
  const char* name;
  std::function<void(json::array&)> rewrite;
  MissCause cause = MissCause::kNone;  // kNone = nothing of what was there is lost
  std::int32_t message = -1;           // where the prompts part, if they do
  const char* tool = "";
  bool declared = false;  // the changing line of the system text
  bool asks_on = true;    // with a user message at the end
};

void reorder_keys(json::object& call) {
  json::object& function = call["function"].as_object();
  const json::object old = json::parse(function["arguments"].as_string()).as_object();
  json::object turned;
  for (auto member = old.end(); member != old.begin();) {
    --member;
    turned[member->key()] = member->value();
  }
  function["arguments"] = json::serialize(turned);
}

void respell(json::object& call) {
  json::object& function = call["function"].as_object();
  std::string text(function["arguments"].as_string());
  const auto swap = [&](const std::string& from, const std::string& to) {
    if (const auto found = text.find(from); found != std::string::npos) {
      text.replace(found, from.size(), to);
    }
  };
  swap("1.0", "1");
  swap("12", "1.2e1");
  swap("\"path\"", "\n  \"pa\\u0074h\"  ");
  function["arguments"] = text;
}

std::vector<Rewriting> rewritings() {
  std::vector<Rewriting> all;
  all.push_back({"as it was", [](json::array&) {}});
  all.push_back({"key order", [](json::array& h) { for_each_call(h, reorder_keys); }});
  all.push_back({"spacing and numbers", [](json::array& h) { for_each_call(h, respell); }});
  all.push_back({"arguments as an object", [](json::array& h) {
                   for_each_call(h, [](json::object& call) {
                     json::value& arguments = call["function"].as_object()["arguments"];
                     arguments = json::parse(arguments.as_string());
                   });
                 }});
  all.push_back({"null content", [](json::array& h) {
                   at(h, 2)["content"] = nullptr;
                   at(h, 7)["content"] = "";
                 }});
  all.push_back({"content as blocks", [](json::array& h) {
                   for (const std::size_t i : {1, 5, 6, 9}) {
                     if (!at(h, i)["content"].is_string()) continue;
                     at(h, i)["content"] =
                         json::array{json::object{{"type", "text"}, {"text", at(h, i)["content"]}}};
                   }
                 }});
  all.push_back({"reasoning moved into the text", [](json::array& h) {
                   at(h, 5)["content"] = "<think>I wonder.</think>\n\n" +
                                         std::string(at(h, 5)["content"].as_string());
                 }});
  all.push_back({"reasoning in a field of its own", [](json::array& h) {
                   at(h, 5)["reasoning"] = "I wonder.";
                   at(h, 9)["reasoning_content"] = "Still.";
                 }});
  all.push_back({"trailing space cut", [](json::array& h) {
                   std::string text(at(h, 5)["content"].as_string());
                   at(h, 5)["content"] = text + " \n";
                 }});
  all.push_back({"tool results in one user message", [](json::array& h) {
                   json::array blocks;
                   for (const std::size_t i : {4, 3}) {
                     blocks.push_back(json::object{{"type", "tool_result"},
                                                   {"tool_use_id", at(h, i)["tool_call_id"]},
                                                   {"content", at(h, i)["content"]}});
                   }
                   at(h, 3) = {{"role", "user"}, {"content", blocks}};
                   h.erase(h.begin() + 4);
                 }});
  all.push_back({"renamed call ids", [](json::array& h) {
                   const auto rename = [](json::value& id) {
                     id = "toolu_" + std::string(id.as_string()) + "_x";
                   };
                   for_each_call(h, [&](json::object& call) { rename(call["id"]); });
                   for (json::value& message : h) {
                     json::object& object = message.as_object();
                     if (object.contains("tool_call_id")) rename(object["tool_call_id"]);
                   }
                 }});
  all.push_back({"one answer as two messages", [](json::array& h) {
                   json::object text = {{"role", "assistant"}, {"content", at(h, 2)["content"]}};
                   at(h, 2)["content"] = nullptr;
                   h.insert(h.begin() + 2, text);
                 }});
  all.push_back({"tools listed in another order", [](json::array& h) {
                   json::array& tools = at(h, 0)["tools"].as_array();
                   std::swap(tools[0], tools[2]);
                 }});
  all.push_back({"changing line in the system text",
                 [](json::array& h) { at(h, 0)["content"] = dated("10:02"); },
                 MissCause::kSystemChanged, 0});
  all.push_back({"changing line that was declared",
                 [](json::array& h) { at(h, 0)["content"] = dated("10:02"); }, MissCause::kNone, -1,
                 "", /*declared=*/true});
  all.push_back({"tool added",
                 [](json::array& h) {
                   at(h, 0)["tools"].as_array().push_back(test::tool("grep", "Searches."));
                 },
                 MissCause::kToolsChanged, 0, "grep"});
  all.push_back({"tool removed",
                 [](json::array& h) {
                   at(h, 0)["tools"].as_array().erase(at(h, 0)["tools"].as_array().begin() + 1);
                 },
                 MissCause::kToolsChanged, 0, "list_dir"});
  all.push_back({"user message edited",
                 [](json::array& h) { at(h, 6)["content"] = "and the docs: " + words(40, 5); },
                 MissCause::kMessageEdited, 6});
  all.push_back({"tool result edited", [](json::array& h) { at(h, 8)["content"] = "2 failed"; },
                 MissCause::kMessageEdited, 8});
  all.push_back({"answer cut to its first words",
                 [](json::array& h) { at(h, 5)["content"] = "something else was said here"; },
                 MissCause::kMessageEdited, 5});
  all.push_back({"calls with other text",
                 [](json::array& h) { at(h, 2)["content"] = "Let me look."; },
                 MissCause::kAnswerRewritten, 2});
  all.push_back({"message left out", [](json::array& h) { h.erase(h.begin() + 7, h.begin() + 9); },
                 MissCause::kMessageEdited, 7});
  all.push_back({"answer wanted again", [](json::array& h) { h.erase(h.begin() + 9); },
                 MissCause::kHeadMoved, -1, "", false, /*asks_on=*/false});
  return all;
}

// --- The corpus.

// What a session is after the rewriting, and what its turn reported.
struct Outcome {
  SyncReport report;
  ReuseReport reuse;
};

Outcome go_on(Session& session, const Rewriting& rewriting) {
  json::array history = without_reminders(client_history(session));
  rewriting.rewrite(history);
  if (rewriting.asks_on) append_user(history, "go on, please");
  const std::vector<Message> messages = parsed(history);
  SyncOptions options;
  if (rewriting.declared) options.volatile_lines = {"Current time:"};
  const auto n_events = session.info().n_events;
  const Result<TurnPlan> plan = session.plan_sync(messages, kShort, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(session.info().n_events, n_events);  // a plan writes nothing
  Result<SyncReport> report = session.sync(messages, options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  const Reply reply = read_turn(session.start_turn(kShort));
  EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
  if (!plan.ok() || !report.ok()) return {};
  EXPECT_EQ(report->messages.size(), messages.size());
  EXPECT_EQ(report->n_kept + report->n_appended, static_cast<std::int64_t>(messages.size()));
  EXPECT_EQ(plan->reuse.prefilled, reply.reuse.prefilled);
  EXPECT_EQ(plan->reuse.replayed, reply.reuse.replayed);
  EXPECT_EQ(plan->reuse.cause, reply.reuse.cause);
  EXPECT_EQ(plan->reuse.lost_tokens, reply.reuse.lost_tokens);
  EXPECT_EQ(plan->sync.common_tokens, report->common_tokens);
  EXPECT_EQ(report->prompt_tokens, reply.reuse.prompt_tokens);
  return {std::move(*report), reply.reuse};
}

void expect_class(const Rewriting& rewriting, const Outcome& outcome) {
  const auto& [report, reuse] = outcome;
  EXPECT_EQ(report.cause, rewriting.cause) << report.detail;
  EXPECT_EQ(report.forked, rewriting.cause != MissCause::kNone);
  if (rewriting.cause == MissCause::kNone) {
    EXPECT_EQ(reuse.cause, MissCause::kNewTokens) << reuse.detail;
    EXPECT_EQ(reuse.lost_tokens, 0);
    EXPECT_EQ(reuse.prefilled, reuse.prompt_tokens - (report.common_tokens - 1));
    return;
  }
  if (!rewriting.asks_on) {  // there is a tail where the prompt ended
    EXPECT_EQ(reuse.cause, MissCause::kNone) << reuse.detail;
    EXPECT_EQ(reuse.prefilled, 0);
    return;
  }
  EXPECT_EQ(reuse.cause, rewriting.cause) << reuse.detail;
  EXPECT_EQ(reuse.difference.message, rewriting.message);
  EXPECT_EQ(reuse.difference.tool, rewriting.tool);
  EXPECT_EQ(reuse.difference.stored == reuse.difference.given, rewriting.message < 0);
  EXPECT_LE(reuse.difference.stored.size(), 40u);
  EXPECT_GT(reuse.lost_tokens, 0);
  EXPECT_GT(reuse.lost_ms, 0);
}

// A client goes on after rewriting its history: what is lost, and what it is called. All of it that
// is reusable is reused, but for the tokens after the last whole block where a message parts in its
// middle.
TEST(Sync, every_rewriting_costs_what_it_must_and_is_named) {
  LiveStore store(model());
  Session plain = store.create("plain"), declared = store.create("declared");
  talk(plain);
  talk_by_requests(declared, client_history(plain));
  std::int64_t reusable = 0, reused = 0, number = 0;
  for (const Rewriting& rewriting : rewritings()) {
    SCOPED_TRACE(rewriting.name);
    Result<Session> fork =
        (rewriting.declared ? declared : plain).fork("client " + std::to_string(number++));
    ASSERT_TRUE(fork.ok()) << fork.status().to_string();
    const Outcome outcome = go_on(*fork, rewriting);
    expect_class(rewriting, outcome);
    const std::int64_t n_reused = outcome.reuse.prompt_tokens - outcome.reuse.prefilled;
    const std::int64_t n_reusable = outcome.report.common_tokens - 1;
    EXPECT_GE(n_reused, n_reusable / 128 * 128 - 128);
    if (rewriting.cause == MissCause::kHeadMoved) {
      EXPECT_GE(n_reused, n_reusable);
    }
    reusable += n_reusable;
    reused += n_reused;
    std::printf("%-34s prompt %4d  reusable %4d  reused %4d  lost %4d\n", rewriting.name,
                static_cast<int>(outcome.reuse.prompt_tokens), static_cast<int>(n_reusable),
                static_cast<int>(n_reused), static_cast<int>(outcome.reuse.lost_tokens));
  }
  std::printf("reused %.2f %% of the reusable tokens\n",
              100 * static_cast<double>(reused) / static_cast<double>(reusable));
  EXPECT_GE(reused * 100, reusable * 99);
}

// --- Single steps.

// A short conversation without tools: two questions, two answers.
void chat(Session& session) {
  ASSERT_TRUE(session.append(Message::system(words(50, 1))).ok());
  for (const unsigned seed : {2u, 3u}) {
    say(session, words(80, seed));
    ASSERT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
  }
}

std::vector<Message> without_ids(std::vector<Message> messages) {
  for (Message& message : messages) {
    message.event = 0;
    message.sampled_tokens.clear();
  }
  return messages;
}

TEST(Sync, what_a_session_has_already_is_not_written_again) {
  LiveStore store(model());
  Session session = store.create("s");
  chat(session);
  const auto n_events = session.info().n_events;
  for (int i = 0; i < 2; ++i) {
    const auto report = session.sync(without_ids(*session.messages()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->n_kept, 5);
    EXPECT_EQ(report->n_appended + report->n_left, 0);
    EXPECT_FALSE(report->forked);
    EXPECT_EQ(report->messages[2].match, SyncMatch::kText);
    EXPECT_EQ(report->messages[2].event, session.messages()->at(2).event);
  }
  EXPECT_EQ(session.info().n_events, n_events);
}

TEST(Sync, an_empty_session_takes_a_whole_history_over) {
  LiveStore store(model());
  Session source = store.create("source"), copy = store.create("copy");
  chat(source);
  std::vector<Message> history = without_ids(*source.messages());
  history.push_back(Message::user("go on"));
  const auto report = copy.sync(history);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->n_appended, 6);
  EXPECT_EQ(report->messages[2].match, SyncMatch::kNone);
  EXPECT_FALSE(report->forked);
  EXPECT_EQ(read_turn(copy.start_turn(kShort)).reuse.prompt_tokens, report->prompt_tokens);
  EXPECT_EQ(copy.messages()->size(), 7u);
}

TEST(Sync, a_client_that_comes_back_to_a_branch_finds_it_as_it_was) {
  LiveStore store(model());
  Session session = store.create("s");
  chat(session);
  const std::vector<Message> first = *session.messages();
  std::vector<Message> other = without_ids(first);
  other[3] = Message::user("something else: " + words(70, 9));
  other.pop_back();
  ASSERT_TRUE(session.sync(other)->forked);
  ASSERT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
  EXPECT_EQ(session.messages()->size(), 5u);

  std::vector<Message> back = without_ids(first);
  back.push_back(Message::user("go on"));
  const auto report = session.sync(back);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->forked);
  EXPECT_EQ(report->forked_at, first.back().event);
  EXPECT_EQ(report->n_kept, 5);
  EXPECT_EQ(report->n_appended, 1);
  EXPECT_EQ(report->n_left, 2);
  const auto messages = session.messages();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(messages->at(i).sampled_tokens, first[i].sampled_tokens);
    EXPECT_EQ(messages->at(i).event, first[i].event);
  }
  EXPECT_EQ(read_turn(session.start_turn(kShort)).reuse.prompt_tokens, report->prompt_tokens);
}

// Every state that a sync leaves: the same tokens as a session that has only ever seen the messages
// as they are then.
TEST(Sync, what_follows_is_what_a_cold_session_would_say) {
  const auto edits = std::vector<std::function<void(std::vector<Message>&)>>{
      [](auto& h) { h.push_back(Message::user("go on")); },
      [](auto& h) {
        h[3] = Message::user("something else");
        h.pop_back();
      },
      [](auto& h) { h.pop_back(); },
      [](auto& h) {
        h[0] = Message::system("Other rules. " + words(40, 4));
        h.push_back(Message::user("go on"));
      },
      [](auto& h) {
        h.erase(h.begin() + 1, h.begin() + 3);
        h.push_back(Message::user("go on"));
      }};
  const TurnOptions options = {.sampling = test::sampled(11), .max_tokens = 16};
  LiveStore store(model());
  Session source = store.create("source");
  chat(source);
  int number = 0;
  for (const auto& edit : edits) {
    SCOPED_TRACE(number);
    Session warm = *source.fork("warm " + std::to_string(number));
    std::vector<Message> history = without_ids(*warm.messages());
    edit(history);
    ASSERT_TRUE(warm.sync(history).ok());
    const std::vector<Message> spliced = *warm.messages();
    read_turn(warm.start_turn(options));

    Session cold = store.create("cold " + std::to_string(number++), {.salt = "none shared"});
    for (const Message& message : spliced) ASSERT_TRUE(cold.append(message).ok());
    read_turn(cold.start_turn(options));
    EXPECT_EQ(last_tokens(warm), last_tokens(cold));
  }
}

TEST(Sync, an_interrupted_answer_stays_or_goes_as_the_client_says) {
  for (const bool kept : {true, false}) {
    SCOPED_TRACE(kept);
    LiveStore store(model());
    Session session = store.create("s");
    say(session, words(30, 1));
    Result<Turn> stopped = test::start_and_cancel(
        model(), 12, [&] { return session.start_turn({.sampling = greedy(), .max_tokens = 40}); });
    const Reply reply = read_turn(*stopped);
    ASSERT_TRUE(session.info().turn_open);
    std::vector<Message> history = {Message::user(words(30, 1))};
    if (kept) {
      Message partial;
      partial.role = Role::kAssistant;
      partial.content.push_back({ContentBlock::Kind::kText, reply.text(), {}});
      history.push_back(partial);
    }
    history.push_back(Message::user("never mind"));
    const auto report = session.sync(history);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->forked, !kept);
    EXPECT_FALSE(session.info().turn_open);
    const auto messages = session.messages();
    ASSERT_EQ(messages->size(), kept ? 3u : 2u);
    EXPECT_EQ(messages->at(1).sampled_tokens.empty(), !kept);
    EXPECT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
  }
}

// The log of a session that went back before its first event is as sound as any other.
TEST(Sync, a_store_with_synced_sessions_is_sound) {
  LiveStore store(model());
  {
    Session session = store.create("s");
    chat(session);
    for (const unsigned seed : {7u, 8u}) {
      std::vector<Message> history = without_ids(*session.messages());
      history[0] = Message::system(words(50, seed));
      history.push_back(Message::user("go on"));
      const auto report = session.sync(history);
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->forked_at, 0u);
      EXPECT_TRUE(report->forked);
      EXPECT_EQ(report->messages[2].match, SyncMatch::kText);
      EXPECT_TRUE(report->messages[2].appended);
      ASSERT_TRUE(read_turn(session.start_turn(kShort)).status.ok());
      ASSERT_TRUE(session.fork("fork " + std::to_string(seed)).ok());
    }
    EXPECT_EQ(session.marks()->size(), 2u);
  }
  const std::vector<Message> before = *store.open_session("s").messages();
  ASSERT_TRUE(store.store().collect({.branches = true}).ok());
  store.reopen();
  const auto reader = StoreReader::open(store.path());
  ASSERT_TRUE(reader.ok());
  const auto verified = reader->verify();
  ASSERT_TRUE(verified.ok());
  EXPECT_TRUE(verified->problems.empty()) << verified->problems[0];
  ASSERT_TRUE(reader->show("s").ok());
  const Session session = store.open_session("s");
  ASSERT_EQ(session.messages()->size(), before.size());
  EXPECT_EQ(session.messages()->at(2).sampled_tokens, before[2].sampled_tokens);
}

TEST(Sync, what_cannot_be_a_prompt_is_refused_and_nothing_is_written) {
  LiveStore store(model());
  Session session = store.create("s");
  chat(session);
  const auto n_events = session.info().n_events;
  std::vector<Message> history = without_ids(*session.messages());
  history[3].content[0].kind = ContentBlock::Kind::kImage;
  EXPECT_EQ(session.sync(history).status().code(), StatusCode::kUnsupported);
  history = without_ids(*session.messages());
  history.push_back(Message::user(words(4000, 1)));
  const Status full = session.sync(history).status();
  EXPECT_EQ(full.code(), StatusCode::kContextFull);
  EXPECT_EQ(session.plan_sync(history).status().code(), StatusCode::kContextFull);
  EXPECT_EQ(session.info().n_events, n_events);
  say(session, "x");
  Result<Turn> running = session.start_turn(kShort);
  EXPECT_EQ(session.sync(history).status().code(), StatusCode::kBusy);
  EXPECT_EQ(session.plan().status().code(), StatusCode::kBusy);
  read_turn(*running);
}

}  // namespace
}  // namespace cairn
