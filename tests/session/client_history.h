// A conversation as a stateless client keeps it: JSON in the chat shape, which tests rewrite the
// way real clients do.
#ifndef CAIRN_TESTS_SESSION_CLIENT_HISTORY_H_
#define CAIRN_TESTS_SESSION_CLIENT_HISTORY_H_

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_message.h"
#include "tests/session/live_session.h"

namespace cairn::test {

namespace json = boost::json;

inline json::object tool(const std::string& name, const std::string& description) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", description},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"path", {{"type", "string"}}}, {"line", {{"type", "number"}}}}}}}}}};
}

inline std::string three_tools() {
  return json::serialize(json::array{tool("read_file", "Reads a file."),
                                     tool("list_dir", "Lists a folder."),
                                     tool("run_tests", "Runs the tests.")});
}

// An answer with calls, spelled in tokens as a model may but the tokenizer would not: one for each
// byte. Only who splices these tokens keeps the prefix.
inline Message called(const Model& model, const std::string& text, std::vector<ToolCall> calls) {
  Message message;
  message.role = Role::kAssistant;
  if (!text.empty()) message.content.push_back({ContentBlock::Kind::kText, text, {}});
  message.tool_calls = std::move(calls);
  const auto shown = model.render({Message::user("x"), message}, {.open_answer = false});
  const auto before = model.render({Message::user("x")});
  const std::string end =
      "<\xEF\xBD\x9C"
      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>";
  std::string bytes = shown->text.substr(before->text.size());
  bytes.resize(bytes.size() - end.size());
  for (const char byte : bytes) {
    const auto tokens = model.tokenize(std::string(1, byte));
    message.sampled_tokens.insert(message.sampled_tokens.end(), tokens.begin(), tokens.end());
  }
  message.sampled_tokens.push_back(model.state()->eos());
  return message;
}

// What the client has of a session: all of it but the tokens.
inline json::array client_history(const Session& session) {
  json::array history;
  const std::vector<Message> messages = *session.messages();
  for (Message message : messages) {
    message.event = 0;
    history.push_back(json::parse(engine::message_to_json(message)));
  }
  return history;
}

inline std::vector<Message> parsed(const json::value& body) {
  const auto messages = parse_request(json::serialize(body));
  EXPECT_TRUE(messages.ok()) << messages.status().to_string();
  return messages.ok() ? *messages : std::vector<Message>();
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_CLIENT_HISTORY_H_
