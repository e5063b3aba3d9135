// Bodies of the three protocols: the same conversation gives the same messages.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/session.h"
#include "engine/chat_message.h"

namespace cairn {
namespace {

std::vector<Message> parsed(const std::string& body) {
  auto messages = parse_request(body);
  EXPECT_TRUE(messages.ok()) << messages.status().to_string();
  return messages.ok() ? std::move(*messages) : std::vector<Message>();
}

std::string text_of(const Message& message) {
  std::string text;
  for (const ContentBlock& block : message.content) text += "[" + block.text + "]";
  return text;
}

constexpr const char* kChat = R"({"model": "m", "stream": true,
  "tools": [{"type": "function", "function": {"name": "ls", "description": "Lists.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}],
  "messages": [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "what is here?"},
    {"role": "assistant", "content": "Looking.", "reasoning": "hm", "tool_calls": [{"id": "c1",
      "type": "function", "function": {"name": "ls", "arguments": "{\"path\": \".\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    {"role": "assistant", "content": "Two files."},
    {"role": "user", "content": "thanks"}]})";

constexpr const char* kMessages = R"({"model": "m", "max_tokens": 100,
  "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
  "tools": [{"name": "ls", "description": "Lists.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
  "messages": [
    {"role": "user", "content": "what is here?"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
      {"type": "text", "text": "Looking."},
      {"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "."}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
      "content": [{"type": "text", "text": "a b"}]}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Two files."}]},
    {"role": "user", "content": [{"type": "text", "text": "thanks"}]}]})";

constexpr const char* kResponses = R"({"model": "m", "instructions": "Be brief.",
  "tools": [{"type": "function", "name": "ls", "description": "Lists.", "strict": false,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
    {"type": "web_search"}],
  "input": [
    {"type": "message", "role": "user", "content": [{"type": "input_text",
      "text": "what is here?"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text",
      "text": "hm"}]},
    {"type": "message", "role": "assistant", "id": "msg_7", "content": [{"type": "output_text",
      "text": "Looking."}]},
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{\"path\":\".\"}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a b"},
    {"role": "assistant", "content": "Two files."},
    {"role": "user", "content": "thanks"}]})";

TEST(RequestBody, three_protocols_say_the_same) {
  const std::vector<Message> chat = parsed(kChat);
  ASSERT_EQ(chat.size(), 6u);
  EXPECT_EQ(chat[0].role, Role::kSystem);
  EXPECT_NE(chat[0].tools_json.find("\"ls\""), std::string::npos);
  EXPECT_EQ(chat[2].reasoning, "hm");
  for (const char* body : {kMessages, kResponses}) {
    const std::vector<Message> other = parsed(body);
    ASSERT_EQ(other.size(), chat.size());
    for (std::size_t i = 0; i < chat.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(text_of(other[i]), text_of(chat[i]));
      EXPECT_EQ(other[i].reasoning, chat[i].reasoning);
      EXPECT_EQ(other[i].tools_json, chat[i].tools_json);
      ASSERT_EQ(other[i].tool_calls.size(), chat[i].tool_calls.size());
      for (std::size_t c = 0; c < chat[i].tool_calls.size(); ++c) {
        EXPECT_EQ(other[i].tool_calls[c].id, "c1");
        EXPECT_EQ(other[i].tool_calls[c].name, "ls");
        EXPECT_EQ(other[i].tool_calls[c].arguments_json, R"({"path": "."})");
      }
    }
  }
  EXPECT_EQ(parsed(kResponses)[2].event, 7u);
  EXPECT_EQ(parsed(kResponses)[3].tool_call_id, "c1");
  EXPECT_EQ(parsed(kMessages)[3].content[0].tool_call_id, "c1");
}

TEST(RequestBody, tools_need_a_system_message) {
  const auto messages = parsed(
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
          "function": {"name": "f"}}], "response_format": {"type": "json_schema",
          "json_schema": {"name": "n", "schema": {"type": "object"}}}})");
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[0].response_format_json, R"({"type": "object"})");
  EXPECT_TRUE(parsed(R"({"input": "x"})")[0].tools_json.empty());
  EXPECT_EQ(parsed("[]").size(), 0u);
}

TEST(RequestBody, items_of_one_answer_are_one_message) {
  const auto messages = parsed(R"({"input": [
      {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
      {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "raw text"},
      {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text",
        "text": "B"}]},
      {"type": "custom_tool_call_output", "call_id": "a", "output": "A"},
      {"type": "message", "role": "assistant", "content": "one"},
      {"type": "message", "role": "assistant", "content": "two"}]})");
  ASSERT_EQ(messages.size(), 5u);
  ASSERT_EQ(messages[0].tool_calls.size(), 2u);
  EXPECT_EQ(messages[0].tool_calls[1].arguments_json, R"({"input": "raw text"})");
  EXPECT_EQ(text_of(messages[1]), "[B]");
  EXPECT_EQ(text_of(messages[3]), "[one]");
  EXPECT_EQ(text_of(messages[4]), "[two]");
}

TEST(RequestBody, errors_name_the_place) {
  const auto error = [](const char* body) {
    return std::string(parse_request(body).status().message());
  };
  EXPECT_NE(error("{").size(), 0u);
  EXPECT_NE(error("{}").find("neither messages nor input"), std::string::npos);
  EXPECT_NE(error(R"({"messages": 3})").find("messages"), std::string::npos);
  EXPECT_NE(error(R"({"messages": [{"role": "user", "content": [{"type": "video"}]}]})")
                .find("messages[0].content[0].type: 'video'"),
            std::string::npos);
  EXPECT_NE(error(R"({"input": [{"type": "computer_call"}]})").find("input[0].type"),
            std::string::npos);
}

// Bodies are from strangers: whatever they hold, they are read or refused.
TEST(RequestBody, any_cut_and_any_changed_byte_is_survived) {
  int n_read = 0, n_refused = 0;
  for (const std::string body : {kChat, kMessages, kResponses}) {
    for (std::size_t i = 0; i < body.size(); ++i) {
      std::string changed = body;
      changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 7)));
      for (const std::string& text : {body.substr(0, i), changed}) {
        ++(parse_request(text).ok() ? n_read : n_refused);
      }
    }
  }
  EXPECT_GT(n_read, 0);
  EXPECT_GT(n_refused, 0);
}

}  // namespace
}  // namespace cairn
