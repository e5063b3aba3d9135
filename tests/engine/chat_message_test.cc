#include "engine/chat_message.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace cairn::engine {
namespace {

Message parsed(std::string_view json, std::size_t index = 0) {
  auto message = parse_message(json, index);
  EXPECT_TRUE(message.ok()) << message.status().to_string();
  return message.ok() ? *message : Message();
}

std::string error_of(std::string_view json) {
  const auto message = parse_message(json);
  EXPECT_FALSE(message.ok()) << json;
  EXPECT_EQ(message.status().code(), StatusCode::kInvalidArgument) << json;
  return std::string(message.status().message());
}

TEST(ChatMessage, named_constructors_set_role_and_text) {
  const Message system = Message::system("s", "[]");
  EXPECT_EQ(system.role, Role::kSystem);
  EXPECT_EQ(system.content.at(0).text, "s");
  EXPECT_EQ(system.tools_json, "[]");
  EXPECT_EQ(Message::user("u").role, Role::kUser);
  const Message result = Message::tool_result("call_1", "r");
  EXPECT_EQ(result.role, Role::kTool);
  EXPECT_EQ(result.tool_call_id, "call_1");
  EXPECT_EQ(result.content.at(0).text, "r");
}

TEST(ChatMessage, content_is_a_string_or_blocks) {
  EXPECT_EQ(parsed(R"({"role":"user","content":"a"})").content.at(0).text, "a");
  EXPECT_TRUE(parsed(R"({"role":"assistant","content":null})").content.empty());
  const Message m = parsed(R"({"role":"user","content":[
      {"type":"text","text":"a"}, {"type":"image_url","image_url":{"url":"x"}}, {"type":"image"},
      {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"p"},
                                                          {"type":"text","text":"q"}]},
      {"type":"tool_result","tool_call_id":"t2","content":"r"}]})");
  ASSERT_EQ(m.content.size(), 5u);
  EXPECT_EQ(m.content[1].kind, ContentBlock::Kind::kImage);
  EXPECT_EQ(m.content[2].kind, ContentBlock::Kind::kImage);
  EXPECT_EQ(m.content[3].kind, ContentBlock::Kind::kToolResult);
  EXPECT_EQ(m.content[3].tool_call_id, "t1");
  EXPECT_EQ(m.content[3].text, "p\n\nq");
  EXPECT_EQ(m.content[4].tool_call_id, "t2");
  EXPECT_EQ(m.content[4].text, "r");
}

TEST(ChatMessage, developer_is_system_at_the_start_and_user_elsewhere) {
  EXPECT_EQ(parsed(R"({"role":"developer","content":"x"})", 0).role, Role::kSystem);
  EXPECT_EQ(parsed(R"({"role":"developer","content":"x"})", 3).role, Role::kUser);
  const auto list = parse_messages(R"([{"role":"developer","content":"x"},
                                       {"role":"developer","content":"y"}])");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ((*list)[0].role, Role::kSystem);
  EXPECT_EQ((*list)[1].role, Role::kUser);
}

TEST(ChatMessage, arguments_come_as_object_string_or_double_encoded) {
  const auto arguments = [](const std::string& json) {
    const Message m = parsed(R"({"role":"assistant","tool_calls":[{"id":"c","type":"function",
        "function":{"name":"f","arguments":)" +
                             json + "}}]}");
    return m.tool_calls.empty() ? "none" : m.tool_calls[0].arguments_json;
  };
  EXPECT_EQ(arguments(R"({"b":1,"a":1.0})"), R"({"b": 1, "a": 1.0})");
  EXPECT_EQ(arguments(R"("{\"b\":12345678901234567890123}")"), R"({"b": 12345678901234567890123})");
  EXPECT_EQ(arguments(R"("\"{\\\"b\\\":1}\"")"), R"({"b": 1})");
  EXPECT_EQ(arguments(R"("not json")"), R"({"arguments": "not json"})");
  EXPECT_EQ(arguments(R"("[1,2]")"), R"({"arguments": "[1,2]"})");
  EXPECT_EQ(arguments("[1,2]"), R"({"arguments": [1, 2]})");
  EXPECT_EQ(arguments("7"), R"({"arguments": 7})");
  EXPECT_EQ(parsed(R"({"role":"assistant","tool_calls":[{"function":{"name":"f"}}]})")
                .tool_calls.at(0)
                .arguments_json,
            "{}");
}

TEST(ChatMessage, a_namespace_qualifies_the_name) {
  const auto name = [](const std::string& fields) {
    const Message m = parsed(R"({"role":"assistant","tool_calls":[{"id":"c",)" + fields + "}]}");
    return m.tool_calls.empty() ? "none" : m.tool_calls[0].name;
  };
  EXPECT_EQ(name(R"("namespace":"maps","function":{"name":"route"})"), "maps::route");
  EXPECT_EQ(name(R"("namespace":{"name":"maps"},"function":{"name":"route"})"), "maps::route");
  EXPECT_EQ(name(R"("function":{"name":"route","namespace":"maps"})"), "maps::route");
  EXPECT_EQ(name(R"("namespace":"maps","function":{"name":"maps::route"})"), "maps::route");
  EXPECT_EQ(name(R"("namespace":null,"function":{"name":"maps::route"})"), "maps::route");
}

TEST(ChatMessage, errors_name_the_field) {
  EXPECT_NE(error_of("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("role: missing"), std::string::npos);
  EXPECT_NE(error_of(R"({"role":"robot"})").find("'robot'"), std::string::npos);
  EXPECT_NE(error_of(R"({"role":"user","content":7})").find("content"), std::string::npos);
  EXPECT_NE(error_of(R"({"role":"user","content":[{"type":"text"},{"type":"video"}]})")
                .find("content[1].type"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"role":"user","content":[{"type":"text","text":1}]})")
                .find("content[0].text: expected a string, found number"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"role":"user","content":[{"type":"tool_result","content":
                        [{"type":"image"}]}]})")
                .find("content[0].content[0].type"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"role":"assistant","tool_calls":[{"id":"x"}]})").find("tool_calls[0].function"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"role":"assistant","tool_calls":[{"namespace":"a",
                        "function":{"name":"b::c"}}]})")
                .find("disagrees"),
            std::string::npos);
  for (const std::string_view name : {"", "::f", "n::", "a::b::c", "a>b", "n::a\\\"b"}) {
    const std::string json = R"({"role":"assistant","tool_calls":[{"function":{"name":")" +
                             std::string(name) + R"("}}]})";
    EXPECT_NE(error_of(json).find("tool_calls[0].function.name"), std::string::npos) << name;
  }
  EXPECT_NE(error_of(R"({"role":"system","tools":[{"type":"function"}]})").find("tools[0]"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"role":"assistant","wo_eos":1})").find("wo_eos"), std::string::npos);
  const auto list = parse_messages(R"([{"role":"user","content":"x"},{"role":"x"}])");
  ASSERT_FALSE(list.ok());
  EXPECT_NE(list.status().message().find("messages[1]: role"), std::string::npos);
}

TEST(ChatMessage, a_message_survives_the_way_to_json_and_back) {
  const std::vector<std::string> messages = {
      R"({"role": "system", "content": "s\n\"x\"", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"default": 1.0}}}], "response_format": {"type": "object"}})",
      R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "tool_result", "tool_call_id": "c", "content": "r"}], "task": "title"})",
      R"({"role": "user", "content": ""})",
      R"({"role": "assistant", "reasoning_content": "why", "content": "é", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "n::f", "arguments": "{\"a\": 1e+22}"}}], "wo_eos": true})",
      R"({"role": "assistant", "content": null})",
      R"({"role": "tool", "content": "r", "tool_call_id": "c"})",
      R"({"role": "latest_reminder", "content": "now"})"};
  for (const std::string& json : messages) {
    EXPECT_EQ(message_to_json(parsed(json)), json);
  }
}

TEST(ChatMessage, what_is_written_is_json_whatever_the_message_holds) {
  Message message = Message::user("broken \xff\xc3 utf-8");
  message.tools_json = "{not json";
  const auto again = parse_message(message_to_json(message));
  EXPECT_FALSE(again.ok());  // the tools are a string
  message.tools_json.clear();
  EXPECT_EQ(parsed(message_to_json(message)).content.at(0).text, "broken \uFFFD\uFFFD utf-8");
}

}  // namespace
}  // namespace cairn::engine
