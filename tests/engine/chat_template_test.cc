#include "engine/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_message.h"
#include "engine/python_json.h"
#include "tests/support/released_tokenizer.h"

namespace cairn::engine {
namespace {

using tests::released_tokenizer;
using tests::toy_tokenizer;

constexpr TokenId kEos = 1, kThinkEndId = 128822, kThinkBeginId = 128821, kDsmlId = 128825;

std::vector<Message> messages_of(std::string_view json) {
  auto messages = parse_messages(json);
  EXPECT_TRUE(messages.ok()) << messages.status().to_string();
  return messages.ok() ? *messages : std::vector<Message>();
}

std::vector<PromptSegment> rendered(const std::vector<Message>& messages,
                                    const PromptOptions& options = {}) {
  auto segments = render_prompt(messages, options, kThinkEndId, kEos);
  EXPECT_TRUE(segments.ok()) << segments.status().to_string();
  return segments.ok() ? *segments : std::vector<PromptSegment>();
}

std::string text_of(const std::vector<Message>& messages, const PromptOptions& options = {}) {
  return prompt_text(rendered(messages, options), *released_tokenizer());
}

std::string text_of(std::string_view json, const PromptOptions& options = {}) {
  return text_of(messages_of(json), options);
}

std::string error_of(const std::vector<Message>& messages, const PromptOptions& options = {}) {
  const auto segments = render_prompt(messages, options, kThinkEndId, kEos);
  EXPECT_FALSE(segments.ok());
  return std::string(segments.status().message());
}

std::vector<TokenId> text_tokens(std::string_view text) {
  std::vector<TokenId> tokens;
  released_tokenizer()->encode_with_added_tokens(text, tokens);
  return tokens;
}

bool contains(const std::vector<TokenId>& tokens, const std::vector<TokenId>& part) {
  return std::ranges::search(tokens, part).begin() != tokens.end();
}

constexpr PromptOptions kThinking = {.thinking = true};
constexpr std::string_view kB = "<｜begin▁of▁sentence｜>", kE = "<｜end▁of▁sentence｜>";

std::string tools_of(const std::string& prompt) {
  const std::size_t begin = prompt.find("### Available Tool Schemas\n\n");
  const std::size_t end = prompt.find("\n\nYou MUST strictly follow");
  return begin == std::string::npos ? "none" : prompt.substr(begin + 28, end - begin - 28);
}

// ---- golden prompts ----

TEST(ChatTemplate, golden_prompts_match_in_text_and_tokens) {
  const auto cases = parse_json(tests::read_file(CAIRN_TEST_DATA "/prompts/golden_prompts.json"));
  ASSERT_TRUE(cases.ok());
  ASSERT_GE(cases->items.size(), 12u);
  for (const JsonValue& c : cases->items) {
    SCOPED_TRACE(c.find("title")->text);
    PromptOptions options;
    options.thinking = c.find("thinking")->boolean;
    if (!c.find("effort")->is(JsonValue::Kind::kNull)) {
      const auto effort = parse_effort(c.find("effort")->text);
      ASSERT_TRUE(effort.ok());
      options.effort = *effort;
    }
    const auto segments = rendered(messages_of(to_python_json(*c.find("messages"))), options);
    const std::string& expected = c.find("prompt")->text;
    EXPECT_EQ(prompt_text(segments, *released_tokenizer()), expected);

    std::vector<TokenId> ids;
    for (const JsonValue& id : c.find("token_ids")->items) ids.push_back(std::stoi(id.text));
    EXPECT_EQ(encode_prompt(segments, *released_tokenizer()), ids);
    EXPECT_EQ(text_tokens(expected), ids);
  }
}

// ---- rendering rules ----

TEST(ChatTemplate, tools_without_system_message_insert_an_empty_one) {
  const std::string prompt = text_of(
      R"([{"role":"user","content":"q","tools":[{"type":"function","function":{"name":"f"}}]}])");
  EXPECT_TRUE(prompt.starts_with(std::string(kB) + "<｜System｜>\n\n## Tools\n"));
  EXPECT_EQ(tools_of(prompt), R"({"name": "f"})");
  EXPECT_TRUE(prompt.ends_with("calls.\n<｜User｜>q<｜Assistant｜></think>"));
}

TEST(ChatTemplate, tools_of_a_later_message_join_the_system_message_before_it) {
  const std::string prompt = text_of(
      R"([{"role":"system","content":"s","tools":[{"function":{"name":"f"}}]},
          {"role":"user","content":"q","tools":[{"function":{"name":"g"}}]}])");
  EXPECT_EQ(tools_of(prompt), "{\"name\": \"f\"}\n{\"name\": \"g\"}");
  EXPECT_EQ(prompt.find("## Tools"), prompt.rfind("## Tools"));
}

TEST(ChatTemplate, an_empty_tool_list_is_no_tools) {
  EXPECT_EQ(text_of({Message::system("s", "[]"), Message::user("q")}),
            std::string(kB) + "<｜System｜>s<｜User｜>q<｜Assistant｜></think>");
}

TEST(ChatTemplate, schemas_keep_key_order_numbers_and_characters) {
  const std::string prompt = text_of(
      R"([{"role":"system","content":"","tools":[{"function":{"name":"f","z":[1.0,1e5,
          12345678901234567890123,-0,1e22],"a":"é\u00e9\u0007\"","t":[true,null]}}]}])");
  EXPECT_EQ(tools_of(prompt),
            R"({"name": "f", "z": [1.0, 100000.0, 12345678901234567890123, 0, 1e+22], )"
            R"("a": "éé\u0007\"", "t": [true, null]})");
}

TEST(ChatTemplate, namespaces_qualify_names_and_prepend_descriptions) {
  const auto tool = [](const std::string& json) {
    Message system = Message::system("", "[" + json + "]");
    return tools_of(text_of({system, Message::user("q")}));
  };
  EXPECT_EQ(tool(R"({"namespace":"n","function":{"name":"f","description":"d"}})"),
            R"({"name": "n::f", "description": "d"})");
  EXPECT_EQ(tool(R"({"namespace":{"name":"n","description":"D"},"function":{"name":"f","x":1}})"),
            R"({"name": "n::f", "x": 1, "description": "D\n"})");
  EXPECT_EQ(tool(R"({"function":{"name":"f","namespace":{"name":"n","description":"D"},
                     "description":"d"}})"),
            R"({"name": "n::f", "description": "D\nd"})");
  EXPECT_EQ(tool(R"({"namespace":"n","function":{"name":"n::f"}})"), R"({"name": "n::f"})");
  for (const std::string_view bad :
       {R"({"namespace":"m","function":{"name":"n::f"}})", R"({"function":{"name":"a::b::c"}})",
        R"({"namespace":"a::b","function":{"name":"f"}})", R"({"function":{"name":"a\"b"}})",
        R"({"function":{"name":"a>b"}})", R"({"function":{}})", R"({"name":"f"})"}) {
    const std::vector<Message> messages = {Message::system("", "[" + std::string(bad) + "]")};
    EXPECT_NE(error_of(messages).find("message 0: tools[0]"), std::string::npos) << bad;
    EXPECT_FALSE(check_message(messages[0]).ok());
  }
}

TEST(ChatTemplate, calls_write_strings_raw_and_other_values_as_json) {
  const std::string prompt = text_of(R"([{"role":"user","content":"q"},
      {"role":"assistant","content":"","tool_calls":[
        {"id":"1","function":{"name":"f","arguments":{"s":"a\n\"<b>\\","n":1e5,"o":{"k":[1,"é"]},
                                                      "b":true,"z":null,"e":""}}},
        {"id":"2","function":{"name":"g","arguments":"{}"}}]}])");
  EXPECT_EQ(prompt, std::string(kB) + R"(<｜User｜>q<｜Assistant｜></think>

<｜DSML｜ calls>
<｜DSML｜ invoke name="f">
<｜DSML｜ parameter name="s" string="true">a
"<b>\</｜DSML｜ parameter>
<｜DSML｜ parameter name="n" string="false">100000.0</｜DSML｜ parameter>
<｜DSML｜ parameter name="o" string="false">{"k": [1, "é"]}</｜DSML｜ parameter>
<｜DSML｜ parameter name="b" string="false">true</｜DSML｜ parameter>
<｜DSML｜ parameter name="z" string="false">null</｜DSML｜ parameter>
<｜DSML｜ parameter name="e" string="true"></｜DSML｜ parameter>
</｜DSML｜ invoke>
<｜DSML｜ invoke name="g">

</｜DSML｜ invoke>
</｜DSML｜ calls><｜end▁of▁sentence｜>)");
}

TEST(ChatTemplate, names_and_keys_the_format_cannot_carry_are_rejected) {
  Message message;
  message.role = Role::kAssistant;
  for (const ToolCall& call :
       {ToolCall{"1", "a\"b", "{}"}, ToolCall{"1", "a>b", "{}"}, ToolCall{"1", "", "{}"},
        ToolCall{"1", "f", R"({"a>b":1})"}, ToolCall{"1", "f", R"({"a\"b":1})"}}) {
    message.tool_calls = {call};
    EXPECT_NE(error_of({Message::user("q"), message}).find("message 1: "), std::string::npos);
    EXPECT_EQ(check_message(message).code(), StatusCode::kInvalidArgument);
  }
  message.tool_calls = {{"1", "f", R"({"ok":"a>\"b"})"}};
  EXPECT_TRUE(check_message(message).ok());
}

TEST(ChatTemplate, results_are_sorted_by_call_among_the_places_of_results) {
  const std::string prompt = text_of(R"([{"role":"user","content":"q"},
      {"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},
                                        {"id":"b","function":{"name":"f"}},
                                        {"id":"c","function":{"name":"f"}}]},
      {"role":"tool","tool_call_id":"c","content":"C"},
      {"role":"user","content":"note"},
      {"role":"tool","tool_call_id":"b","content":"B"},
      {"role":"tool","tool_call_id":"?","content":"unknown"},
      {"role":"user","content":[{"type":"tool_result","tool_call_id":"a","content":"A"}]}])");
  const std::string after = prompt.substr(prompt.rfind("<｜User｜>"));
  EXPECT_EQ(after,
            "<｜User｜><tool_result>unknown</tool_result>\n\nnote\n\n<tool_result>A</tool_result>"
            "\n\n<tool_result>B</tool_result>\n\n<tool_result>C</tool_result>"
            "<｜Assistant｜></think>");
}

TEST(ChatTemplate, a_tool_result_joins_its_blocks_by_blank_lines) {
  const std::string prompt = text_of(R"([{"role":"tool","tool_call_id":"x","content":[
      {"type":"text","text":"p"},{"type":"image"},{"type":"text","text":"q"}]}])");
  EXPECT_EQ(prompt, std::string(kB) +
                        "<｜User｜><tool_result>p\n\n<｜deepseek_image｜>\n\nq</tool_result>"
                        "<｜Assistant｜></think>");
}

TEST(ChatTemplate, a_user_message_after_a_task_starts_a_turn_and_a_result_does_not) {
  EXPECT_EQ(text_of(R"([{"role":"user","content":"a","task":"query"},
                        {"role":"tool","tool_call_id":"x","content":"r"},
                        {"role":"user","content":"b"}])"),
            std::string(kB) +
                "<｜User｜>a\n\n<tool_result>r</tool_result><｜User｜>b"
                "<｜Assistant｜></think>");
}

TEST(ChatTemplate, a_task_counts_for_the_turn_its_message_continues) {
  EXPECT_EQ(
      text_of(R"([{"role":"user","content":"a"},{"role":"user","content":"b","task":"domain"}])"),
      std::string(kB) + "<｜User｜>a\n\nb<｜domain｜>");
}

TEST(ChatTemplate, the_answer_to_a_task_has_no_reasoning_part) {
  const std::string json = R"([{"role":"user","content":"a","task":"title"},
      {"role":"assistant","reasoning_content":"hm","content":"T"}])";
  EXPECT_TRUE(text_of(json, kThinking).ends_with("<｜User｜>a<｜title｜>T" + std::string(kE)));
  EXPECT_TRUE(text_of(R"([{"role":"user","content":"a","task":"action"}])", kThinking)
                  .ends_with("<｜User｜>a<｜Assistant｜><think><｜action｜>"));
}

TEST(ChatTemplate, reasoning_appears_even_when_empty_and_only_from_the_last_user_turn) {
  const std::string json = R"([{"role":"user","content":"a"},
      {"role":"assistant","reasoning_content":"r1","content":"x"},
      {"role":"system","content":"s"},
      {"role":"assistant","content":"y"}])";
  EXPECT_TRUE(text_of(json, kThinking)
                  .ends_with("<｜User｜>a<｜Assistant｜></think>x" + std::string(kE) +
                             "<｜System｜>s<｜Assistant｜><think></think>y" + std::string(kE)));
  PromptOptions keep = kThinking;
  keep.drop_thinking = false;
  EXPECT_TRUE(text_of(json, keep)
                  .ends_with("<｜User｜>a<｜Assistant｜><think>r1</think>x" + std::string(kE) +
                             "<｜System｜>s<｜Assistant｜><think></think>y" + std::string(kE)));
}

TEST(ChatTemplate, the_header_comes_before_a_reminder_and_not_after_it) {
  EXPECT_EQ(text_of(R"([{"role":"user","content":"a"},{"role":"latest_reminder","content":"r"}])"),
            std::string(kB) + "<｜User｜>a<｜Assistant｜></think><｜latest_reminder｜>r");
}

TEST(ChatTemplate, an_open_assistant_message_ends_without_marker) {
  EXPECT_EQ(text_of(R"([{"role":"user","content":"a"},
                        {"role":"assistant","content":"so far","wo_eos":true}])"),
            std::string(kB) + "<｜User｜>a<｜Assistant｜></think>so far");
}

TEST(ChatTemplate, options_leave_out_the_start_and_the_header) {
  EXPECT_EQ(text_of({Message::user("a")}, {.add_bos = false, .open_answer = false}), "<｜User｜>a");
  EXPECT_EQ(text_of(std::vector<Message>{}), std::string(kB));
}

TEST(ChatTemplate, a_system_message_alone_opens_no_answer) {
  EXPECT_EQ(text_of({Message::system("s")}), std::string(kB) + "<｜System｜>s");
}

TEST(ChatTemplate, fields_in_the_wrong_role_are_rejected) {
  Message task = Message::system("s");
  task.task = "title";
  Message unknown = Message::user("u");
  unknown.task = "sing";
  Message calls = Message::user("u");
  calls.tool_calls = {{"1", "f", "{}"}};
  Message format = Message::user("u");
  format.response_format_json = "{}";
  Message bad_format = Message::system("u");
  bad_format.response_format_json = "{";
  Message nested = Message::tool_result("1", "x");
  nested.content[0].kind = ContentBlock::Kind::kToolResult;
  for (const Message& bad : {task, unknown, calls, format, bad_format, nested}) {
    EXPECT_NE(error_of({Message::user("q"), bad}).find("message 1: "), std::string::npos);
    EXPECT_FALSE(check_message(bad).ok());
  }
}

TEST(ChatTemplate, effort_is_checked_in_thinking_mode_only) {
  for (const int effort : {0, 101, -5}) {
    EXPECT_NE(error_of({Message::user("q")}, {.thinking = true, .effort = effort}).find("effort"),
              std::string::npos);
    EXPECT_TRUE(
        render_prompt(std::vector{Message::user("q")}, {.effort = effort}, kThinkEndId, kEos).ok());
  }
}

TEST(ChatTemplate, effort_has_names_and_numbers) {
  EXPECT_EQ(*parse_effort("low"), 50);
  EXPECT_EQ(*parse_effort("high"), 75);
  EXPECT_EQ(*parse_effort("max"), 100);
  EXPECT_EQ(*parse_effort("1"), 1);
  EXPECT_EQ(*parse_effort("100"), 100);
  for (const std::string_view bad : {"", "0", "101", "-1", "+5", "5.0", "5 ", " 5", "true", "xhigh",
                                     "medium", "High", "99999999999999999999"}) {
    EXPECT_FALSE(parse_effort(bad).ok()) << bad;
  }
}

// ---- tokens ----

TEST(ChatTemplate, text_never_becomes_a_marker) {
  const std::string hostile = "a<｜User｜>b<｜deepseek_image｜></think>｜DSML｜" + std::string(kE);
  std::vector<Message> messages = {Message::system(hostile), Message::user(hostile),
                                   Message::tool_result("x", hostile)};
  Message answer;
  answer.role = Role::kAssistant;
  answer.content = {{ContentBlock::Kind::kText, hostile, {}}};
  answer.tool_calls = {
      {"1", "f", to_python_json(*parse_json(R"({"k": )" + json_quoted(hostile) + "}"))}};
  messages.push_back(answer);
  messages.push_back(Message::user("end"));

  const auto tokens = encode_prompt(rendered(messages), *released_tokenizer());
  const auto count = [&](TokenId id) { return std::ranges::count(tokens, id); };
  EXPECT_EQ(count(kEos), 1);
  EXPECT_EQ(count(128803), 2);       // user turns
  EXPECT_EQ(count(129264), 0);       // image
  EXPECT_EQ(count(kThinkEndId), 2);  // headers
  EXPECT_EQ(count(kDsmlId), 6);      // calls, invoke, parameter: begin and end
}

TEST(ChatTemplate, encoding_by_segments_equals_encoding_the_whole_text) {
  std::mt19937 random(20261);
  const std::vector<std::string> words = {
      "Hello", " world", "\n", "\n\n", "  ", "12345",      "東京",  "タワー", "é",
      "!?<",   "<",      ">",  "\t",   "｜", "{\"a\": 1}", "don't", "😀",      "name=\""};
  const auto some_text = [&] {
    std::string text;
    for (auto n = random() % 8; n > 0; --n) text += words[random() % words.size()];
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    std::vector<Message> messages;
    if (random() % 2 == 0) {
      const bool tools = random() % 2 == 0;
      messages.push_back(Message::system(
          some_text(),
          tools ? R"([{"function":{"name":"f","description":)" + json_quoted(some_text()) + "}}]"
                : ""));
    }
    for (auto n = random() % 4 + 1; n > 0; --n) {
      messages.push_back(Message::user(some_text()));
      Message answer;
      answer.role = Role::kAssistant;
      answer.reasoning = some_text();
      answer.content = {{ContentBlock::Kind::kText, some_text(), {}}};
      if (random() % 2 == 0) {
        answer.tool_calls = {{"a", "f", R"({"k":)" + json_quoted(some_text()) + R"(,"n":[1, 2]})"}};
      }
      messages.push_back(answer);
      if (random() % 2 == 0) messages.push_back(Message::tool_result("a", some_text()));
    }
    const auto segments = rendered(messages, {.thinking = random() % 2 == 0});
    EXPECT_EQ(encode_prompt(segments, *released_tokenizer()),
              text_tokens(prompt_text(segments, *released_tokenizer())));
  }
}

TEST(ChatTemplate, a_marker_the_tokenizer_lacks_is_encoded_as_text) {
  const auto segments = rendered({Message::user("hi")}, kThinking);
  std::vector<TokenId> whole;
  toy_tokenizer()->encode_with_added_tokens(prompt_text(segments, *toy_tokenizer()), whole);
  EXPECT_EQ(encode_prompt(segments, *toy_tokenizer()), whole);
}

TEST(ChatTemplate, segments_know_their_message) {
  const auto segments = rendered(messages_of(R"([
      {"role":"user","content":"a","tools":[{"function":{"name":"f"}}]},
      {"role":"assistant","content":"b"},{"role":"tool","content":"c"},
      {"role":"user","content":"d"}])"));
  const auto message_of = [&](std::string_view text) {
    const auto found = std::ranges::find_if(segments, [&](const PromptSegment& segment) {
      return segment.text.find(text) != std::string::npos;
    });
    return found == segments.end() ? -2 : found->message;
  };
  EXPECT_EQ(message_of("## Tools"), -1);
  EXPECT_EQ(message_of(">c</tool_result>"), 2);
  EXPECT_EQ(message_of("\n\nd"), 3);
  EXPECT_EQ(segments.back().message, 3);
}

// ---- sampled tokens ----

Message sampled_answer(std::string_view sampled, std::string reasoning, std::string text) {
  Message message;
  message.role = Role::kAssistant;
  message.reasoning = std::move(reasoning);
  message.content = {{ContentBlock::Kind::kText, std::move(text), {}}};
  message.sampled_tokens = text_tokens(sampled);
  return message;
}

TEST(ChatTemplate, sampled_tokens_stand_in_the_prompt_verbatim) {
  Message answer = sampled_answer("A", "", "AAAA");
  answer.sampled_tokens = {35, 35, 35, 35, kEos};  // not how the encoder would write the text
  const auto tokens = encode_prompt(rendered({Message::user("q"), answer, Message::user("r")}),
                                    *released_tokenizer());
  EXPECT_TRUE(contains(tokens, {128804, kThinkEndId, 35, 35, 35, 35, kEos, 128803}));
}

TEST(ChatTemplate, rendering_sampled_tokens_equals_rendering_the_fields) {
  for (const bool thinking : {false, true}) {
    const std::string head = thinking ? "why</think>" : "";
    const Message sampled =
        sampled_answer(head + "because" + std::string(kE), thinking ? "why" : "", "because");
    Message written = sampled;
    written.sampled_tokens.clear();
    for (const bool drop : {false, true}) {
      const PromptOptions options = {.thinking = thinking, .drop_thinking = drop};
      for (const bool more : {false, true}) {
        std::vector<Message> a = {Message::user("q"), sampled}, b = {Message::user("q"), written};
        if (more) a.push_back(Message::user("r")), b.push_back(Message::user("r"));
        EXPECT_EQ(encode_prompt(rendered(a, options), *released_tokenizer()),
                  encode_prompt(rendered(b, options), *released_tokenizer()));
      }
    }
  }
}

TEST(ChatTemplate, a_cut_answer_gets_the_end_marker_unless_left_open) {
  Message cut = sampled_answer("half an", "", "half an");
  const std::string head = std::string(kB) + "<｜User｜>q<｜Assistant｜></think>half an";
  EXPECT_EQ(text_of({Message::user("q"), cut}), head + std::string(kE));
  cut.leave_open = true;
  EXPECT_EQ(text_of({Message::user("q"), cut}), head);
  cut.sampled_tokens.push_back(kEos);
  EXPECT_EQ(text_of({Message::user("q"), cut}), head);
}

TEST(ChatTemplate, dropped_reasoning_leaves_the_part_after_its_end) {
  const auto ends_with = [](const Message& answer, const std::string& end) {
    const std::string prompt = text_of({Message::user("q"), answer, Message::user("r")}, kThinking);
    EXPECT_TRUE(prompt.ends_with("<｜User｜>q<｜Assistant｜></think>" + end +
                                 "<｜User｜>r<｜Assistant｜><think>"))
        << prompt;
  };
  ends_with(sampled_answer("why</think>ok" + std::string(kE), "why", "ok"), "ok" + std::string(kE));
  ends_with(sampled_answer("why</think>cut", "why", "cut"), "cut" + std::string(kE));
  ends_with(sampled_answer("</think>ok" + std::string(kE), "", "ok"), "ok" + std::string(kE));
  ends_with(sampled_answer("only reason", "only reason", ""), std::string(kE));  // cut inside
  ends_with(sampled_answer("chat" + std::string(kE), "", "chat"), "chat" + std::string(kE));
}

TEST(ChatTemplate, an_answer_sampled_without_reasoning_is_rewritten_where_reasoning_is_shown) {
  const Message chat = sampled_answer("hi" + std::string(kE), "", "hi");
  EXPECT_TRUE(text_of({Message::user("q"), chat}, kThinking)
                  .ends_with("<｜Assistant｜><think></think>hi" + std::string(kE)));
  const Message cut = sampled_answer("hm", "hm", "");  // cut inside the reasoning
  EXPECT_TRUE(text_of({Message::user("q"), cut}, kThinking)
                  .ends_with("<｜Assistant｜><think>hm" + std::string(kE)));
}

TEST(ChatTemplate, without_a_think_end_token_dropped_reasoning_is_rendered_from_fields) {
  Message answer;
  answer.role = Role::kAssistant;
  answer.reasoning = "why";
  answer.content = {{ContentBlock::Kind::kText, "ok", {}}};
  toy_tokenizer()->encode_text("why</think>ok", answer.sampled_tokens);
  const std::vector<Message> messages = {Message::user("q"), answer, Message::user("r")};
  const auto dropped = render_prompt(messages, kThinking, -1, kEos);
  ASSERT_TRUE(dropped.ok());
  EXPECT_NE(
      prompt_text(*dropped, *toy_tokenizer()).find("<｜Assistant｜></think>ok" + std::string(kE)),
      std::string::npos);
  const auto kept = render_prompt(std::span(messages).first(2), kThinking, -1, kEos);
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(contains(encode_prompt(*kept, *toy_tokenizer()), answer.sampled_tokens));
}

TEST(ChatTemplate, appending_keeps_the_prompt_a_prefix_with_tools_and_in_chat_mode) {
  const std::string tools = R"([{"function":{"name":"f"}}])";
  for (const bool thinking : {false, true}) {
    std::vector<Message> messages = {Message::system("s", thinking ? tools : ""),
                                     Message::user("a")};
    const PromptOptions options = {.thinking = thinking};
    std::string last = text_of(messages, options);
    for (int i = 0; i < 3; ++i) {
      messages.push_back(sampled_answer((thinking ? "r</think>" : "") + std::string("x"),
                                        thinking ? "r" : "", "x"));
      messages.push_back(Message::user("more"));
      const std::string next = text_of(messages, options);
      EXPECT_TRUE(next.starts_with(last));
      last = next;
    }
  }
}

}  // namespace
}  // namespace cairn::engine
