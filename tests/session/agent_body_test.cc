// Request bodies in the shapes that coding agents send, through conversations in which each client
// keeps its own history and changes it from turn to turn as it really does. What a turn computes is
// what was added since the one before, and nothing else.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/session/client_history.h"

namespace cairn {
namespace {

using test::LiveStore;
using test::read_turn;
using test::Reply;
using test::text_of;
using test::words;
namespace json = boost::json;

json::object parameters() {
  return {{"type", "object"},
          {"properties",
           {{"path", {{"enum", {"src/a.cc", "src/b.cc"}}}}, {"line", {{"enum", {1, 20}}}}}},
          {"required", {"path", "line"}},
          {"additionalProperties", false}};
}

// What the model said, as the client gets to know it.
struct Answer {
  std::string text;
  std::vector<ToolCall> calls;
};

// A program that talks to a model through one of the protocols.
class Client {
 public:
  virtual ~Client() = default;
  virtual void ask(const std::string& text) = 0;
  virtual void hear(const Answer& answer) = 0;
  virtual void finish_call(const ToolCall& call, const std::string& output) = 0;
  virtual json::object body() = 0;
  virtual bool has_tools() const { return true; }
};

// Anthropic Messages as Claude Code sends them: the system prompt as blocks with a line at its
// beginning that is another each time, a cache mark that moves to the newest message, thinking with
// signatures, reminders in the newest message of the user only.
class ClaudeCode : public Client {
 public:
  void ask(const std::string& text) override {
    messages_.push_back({{"role", "user"}, {"content", json::array{block(text)}}});
  }
  void hear(const Answer& answer) override {
    json::array content = {json::object{{"type", "thinking"},
                                        {"thinking", "They want something."},
                                        {"signature", "EqQBCgIYAhIkM" + std::to_string(n_)}},
                           json::object{{"type", "redacted_thinking"}, {"data", "Emw"}}};
    if (!answer.text.empty()) content.push_back(block(answer.text));
    for (const ToolCall& call : answer.calls) {
      content.push_back({{"type", "tool_use"},
                         {"id", call.id},
                         {"name", call.name},
                         {"input", json::parse(call.arguments_json)}});
    }
    messages_.push_back({{"role", "assistant"}, {"content", content}});
  }
  void finish_call(const ToolCall& call, const std::string& output) override {
    const json::object result = {{"type", "tool_result"},
                                 {"tool_use_id", call.id},
                                 {"content", json::array{block(output)}},
                                 {"is_error", false}};
    if (messages_.back().as_object()["role"] != "user") {
      messages_.push_back({{"role", "user"}, {"content", json::array{}}});
    }
    messages_.back().as_object()["content"].as_array().push_back(result);
  }
  json::object body() override {
    ++n_;
    json::array messages = messages_;
    json::array& newest = messages.back().as_object()["content"].as_array();
    if (n_ % 2 == 0) {
      newest.insert(newest.begin(),
                    block("<system-reminder>\nThe todo list is empty. Do not say so.\n"
                          "</system-reminder>"));
    }
    newest.back().as_object()["cache_control"] = {{"type", "ephemeral"}};
    json::object second = block("You are an agent.\n" + words(10, 1));
    second["cache_control"] = {{"type", "ephemeral"}};
    return {{"model", "claude"},
            {"max_tokens", 32000},
            {"stream", true},
            {"metadata", {{"user_id", "user_1_account__session_2"}}},
            {"system", json::array{block("x-anthropic-billing-header: cc_version=2.1; cch=" +
                                         std::to_string(4711 * n_) + ";"),
                                   second}},
            {"thinking", {{"type", "enabled"}, {"budget_tokens", 31999}}},
            {"tools",
             json::array{json::object{{"name", "Read"},
                                      {"description", "Reads a file."},
                                      {"input_schema", parameters()}},
                         json::object{{"type", "web_search_20250305"}, {"name", "web_search"}}}},
            {"messages", messages}};
  }

 private:
  static json::object block(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

  json::array messages_;
  int n_ = 0;
};

// Responses as Codex sends them: items, a developer message and the environment before the first
// question, reasoning that only the provider can read, tools that are no functions.
class Codex : public Client {
 public:
  Codex() {
    input_ = {message("developer", "input_text", "<permissions instructions>on request"),
              message("user", "input_text",
                      "<environment_context>\n  <cwd>/home/me</cwd>\n</environment_context>")};
  }
  void ask(const std::string& text) override {
    input_.push_back(message("user", "input_text", text));
  }
  void hear(const Answer& answer) override {
    input_.push_back(
        {{"type", "reasoning"},
         {"summary", json::array{json::object{{"type", "summary_text"}, {"text", "**Looking**"}}}},
         {"content", nullptr},
         {"encrypted_content", "gAAAAABo" + std::to_string(input_.size())}});
    if (!answer.text.empty()) input_.push_back(message("assistant", "output_text", answer.text));
    for (const ToolCall& call : answer.calls) {
      input_.push_back({{"type", "function_call"},
                        {"name", call.name},
                        {"arguments", call.arguments_json},
                        {"call_id", call.id}});
    }
  }
  void finish_call(const ToolCall& call, const std::string& output) override {
    input_.push_back({{"type", "function_call_output"}, {"call_id", call.id}, {"output", output}});
  }
  json::object body() override {
    const json::array tools = {
        json::object{{"type", "function"},
                     {"name", "Read"},
                     {"description", "Reads a file."},
                     {"strict", false},
                     {"parameters", parameters()}},
        json::object{
            {"type", "custom"},
            {"name", "apply_patch"},
            {"description", "Edits files."},
            {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: x"}}}},
        json::object{{"type", "local_shell"}},
        json::object{{"type", "web_search"}, {"external_web_access", false}}};
    return {{"model", "gpt"},
            {"instructions", "You are a coding agent.\n" + words(10, 2)},
            {"input", input_},
            {"tools", tools},
            {"tool_choice", "auto"},
            {"parallel_tool_calls", false},
            {"reasoning", {{"effort", "medium"}, {"summary", "auto"}}},
            {"store", false},
            {"stream", true},
            {"include", json::array{"reasoning.encrypted_content"}},
            {"prompt_cache_key", "0199-aa"}};
  }

 private:
  static json::object message(const std::string& role, const char* type, const std::string& text) {
    return {{"type", "message"},
            {"role", role},
            {"content", json::array{json::object{{"type", type}, {"text", text}}}}};
  }

  json::array input_;
};

// Chat Completions as opencode sends them (an OpenAI-compatible provider of the AI SDK): parts or
// plain text as it comes, arguments spelled anew, reasoning in a field of its own.
class OpenCode : public Client {
 public:
  void ask(const std::string& text) override {
    json::value content(text);
    if (++n_ % 2 == 0) content = json::array{json::object{{"type", "text"}, {"text", text}}};
    messages_.push_back({{"role", "user"}, {"content", content}});
  }
  void hear(const Answer& answer) override {
    json::array calls;
    for (const ToolCall& call : answer.calls) {
      calls.push_back({{"id", call.id},
                       {"type", "function"},
                       {"function",
                        {{"name", call.name},
                         {"arguments", json::serialize(json::parse(call.arguments_json))}}}});
    }
    json::object message = {{"role", "assistant"}, {"content", answer.text}};
    if (!calls.empty()) message["tool_calls"] = calls;
    if (n_ % 2 == 0) message["reasoning_content"] = "Let me see.";
    messages_.push_back(message);
  }
  void finish_call(const ToolCall& call, const std::string& output) override {
    messages_.push_back({{"role", "tool"}, {"tool_call_id", call.id}, {"content", output}});
  }
  json::object body() override {
    json::array messages = messages_;
    messages.insert(
        messages.begin(),
        json::object{{"role", "system"}, {"content", "You are opencode.\n" + words(10, 3)}});
    return {{"model", "m"},
            {"max_tokens", 32000},
            {"temperature", 0},
            {"messages", messages},
            {"tools", json::array{json::object{{"type", "function"},
                                               {"function",
                                                {{"name", "Read"},
                                                 {"description", "Reads a file."},
                                                 {"parameters", parameters()}}}}}},
            {"tool_choice", "auto"},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}}};
  }

 private:
  json::array messages_;
  int n_ = 0;
};

// Chat Completions as aider sends them: no tools; what it knows of the files, and an answer that
// nobody gave, stand before the history, the reminder of the rules in the newest message only.
class Aider : public Client {
 public:
  void ask(const std::string& text) override {
    messages_.push_back({{"role", "user"}, {"content", text}});
  }
  void hear(const Answer& answer) override {
    messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
  }
  void finish_call(const ToolCall&, const std::string&) override {}
  bool has_tools() const override { return false; }
  json::object body() override {
    json::array messages = {
        json::object{{"role", "system"}, {"content", "Act as an expert.\n" + words(10, 4)}},
        json::object{{"role", "user"}, {"content", "I have *added these files*:\n" + words(20, 5)}},
        json::object{{"role", "assistant"},
                     {"content",
                      "Ok, any changes I propose will be to "
                      "those files."}}};
    messages.insert(messages.end(), messages_.begin(), messages_.end());
    return {{"model", "m"}, {"messages", messages}, {"temperature", 0}, {"stream", true}};
  }

 private:
  json::array messages_;
};

// Chat Completions as Continue sends them: parts everywhere, content that is null beside calls.
class Continue : public OpenCode {
 public:
  json::object body() override {
    json::object body = OpenCode::body();
    for (json::value& message : body["messages"].as_array()) {
      json::object& object = message.as_object();
      if (object.contains("tool_calls") && object["content"].as_string().empty()) {
        object["content"] = nullptr;
      } else if (object["role"] == "user" && object["content"].is_string()) {
        object["content"] =
            json::array{json::object{{"type", "text"}, {"text", object["content"]}}};
      }
      object.erase("reasoning_content");
    }
    body["n"] = 1;
    body["parallel_tool_calls"] = false;
    return body;
  }
};

SyncOptions declared() {
  return {.volatile_lines = {"x-anthropic-billing-header:", "<system-reminder>"}};
}

// In few long steps: the prompts are long.
const Model& model() {
  static const Model model =
      *Model::open(test::live_runtime(), test::kTinyA, {.prefill_chunk = 512});
  return model;
}

Answer heard(const Session& session) {
  const Message said = session.messages()->back();
  return {text_of(said), said.tool_calls};
}

void sync(Session& session, Client& client) {
  const auto messages = parse_request(json::serialize(client.body()));
  ASSERT_TRUE(messages.ok()) << messages.status().to_string();
  const auto report = session.sync(*messages, declared());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->forked) << report->detail;
}

// The model answers with a call, in tokens that its tokenizer would not choose: only who keeps them
// keeps the prefix.
void request_call(Session& session, Client& client, const std::string& id) {
  sync(session, client);
  const Message call = test::called(
      model(), "Looking.", {{"call_" + id, "Read", R"({"path": "src/a.cc", "line": 20})"}});
  ASSERT_TRUE(session.append(call).ok());
  const Answer answer = heard(session);
  client.hear(answer);
  for (const ToolCall& made : answer.calls) client.finish_call(made, "output " + id);
}

void request_text(Session& session, Client& client, std::int64_t& n_computed) {
  sync(session, client);
  const Reply reply =
      read_turn(session.start_turn({.sampling = test::sampled(5), .max_tokens = 8}));
  EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
  EXPECT_EQ(reply.reuse.prefilled, reply.reuse.prompt_tokens - n_computed) << reply.reuse.detail;
  EXPECT_EQ(reply.reuse.replayed, 0);
  EXPECT_EQ(reply.reuse.lost_tokens, 0);
  n_computed = reply.usage.context_used - 1;
  client.hear(heard(session));
}

void work(Client& client) {
  LiveStore store(model());
  Session session = store.create("s");
  std::int64_t n_computed = 0;
  for (unsigned question = 0; question < 4 && !testing::Test::HasFailure(); ++question) {
    SCOPED_TRACE(question);
    client.ask("question " + std::to_string(question) + ": " + words(5, question));
    if (client.has_tools()) request_call(session, client, std::to_string(question));
    request_text(session, client, n_computed);
  }
}

TEST(AgentBody, claude_code_computes_each_token_once) {
  ClaudeCode client;
  work(client);
}
TEST(AgentBody, codex_computes_each_token_once) {
  Codex client;
  work(client);
}
TEST(AgentBody, opencode_computes_each_token_once) {
  OpenCode client;
  work(client);
}
TEST(AgentBody, aider_computes_each_token_once) {
  Aider client;
  work(client);
}
TEST(AgentBody, continue_computes_each_token_once) {
  Continue client;
  work(client);
}

// -- items and fields of these protocols that are no text --

std::string refusal(const std::string& body) {
  LiveStore store;
  Session session = store.create("s");
  const auto messages = parse_request(body);
  const Status status = messages.ok() ? session.sync(*messages).status() : messages.status();
  EXPECT_FALSE(status.ok()) << body;
  return status.to_string();
}

TEST(AgentBody, images_are_refused_with_their_place) {
  const std::vector<std::string> bodies = {
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image",
          "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}]}]})",
      R"({"messages": [{"role": "user", "content": [{"type": "image_url",
          "image_url": {"url": "data:image/png;base64,iVBO"}}]}]})",
      R"({"input": [{"type": "message", "role": "user", "content": [{"type": "input_image",
          "image_url": "data:image/png;base64,iVBO"}]}]})"};
  for (const std::string& body : bodies) {
    const std::string message = refusal(body);
    EXPECT_NE(message.find("messages[0]"), std::string::npos) << message;
    EXPECT_NE(message.find("mage"), std::string::npos) << message;
  }
}

TEST(AgentBody, a_history_that_is_elsewhere_is_refused) {
  EXPECT_NE(refusal(R"({"input": "go on", "previous_response_id": "resp_1"})")
                .find("previous_response_id"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"input": [{"type": "item_reference", "id": "msg_1"}]})").find("input[0]"),
            std::string::npos);
}

TEST(AgentBody, shells_are_calls_and_searches_of_the_provider_are_nothing) {
  const auto messages = parse_request(R"({"input": [
      {"role": "user", "content": "list"},
      {"type": "web_search_call", "id": "ws_1", "status": "completed"},
      {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "status": "completed",
       "action": {"type": "exec", "command": ["ls", "-l"], "env": {}}},
      {"type": "local_shell_call_output", "call_id": "c1", "output": "total 0"},
      {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c2",
       "output": [{"type": "input_text", "text": "done"}]}]})");
  ASSERT_TRUE(messages.ok()) << messages.status().to_string();
  ASSERT_EQ(messages->size(), 5u);
  EXPECT_EQ(messages->at(1).tool_calls.at(0).name, "local_shell");
  EXPECT_NE(messages->at(1).tool_calls[0].arguments_json.find("\"-l\""), std::string::npos);
  EXPECT_EQ(messages->at(2).tool_call_id, "c1");
  EXPECT_EQ(text_of(messages->at(4)), "done");
}

}  // namespace
}  // namespace cairn
