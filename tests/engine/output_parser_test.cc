#include "engine/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_message.h"
#include "engine/python_json.h"
#include "tests/engine/parsed_output.h"
#include "tests/support/released_tokenizer.h"

namespace cairn::engine {
namespace {

using tests::released_tokenizer;
using tests::toy_tokenizer;

// ---- writing model output ----

std::string parameter(std::string_view key, std::string_view value, bool is_string = true) {
  return "<｜DSML｜ parameter name=\"" + std::string(key) + "\" string=\"" +
         (is_string ? "true" : "false") + "\">" + std::string(value) + "</｜DSML｜ parameter>\n";
}
std::string invoke(std::string_view name, std::string_view body) {
  return "<｜DSML｜ invoke name=\"" + std::string(name) + "\">\n" + std::string(body) +
         "</｜DSML｜ invoke>\n";
}
std::string calls(std::string_view invokes) {
  return "\n\n<｜DSML｜ calls>\n" + std::string(invokes) + "</｜DSML｜ calls>";
}

// By token, as the released tokenizer writes the text.
Turn parse_tokens(std::string_view text, const Options& options) {
  OutputParser parser = parser_for(*released_tokenizer(), options);
  std::vector<TokenId> tokens;
  released_tokenizer()->encode_with_added_tokens(text, tokens);
  std::vector<OutputEvent> events;
  for (const TokenId token : tokens) parser.push(token, events);
  parser.finish(options.complete, events);
  return {joined(events), parser.output()};
}

// Parses in every way and expects the same result: at once, byte by byte, cut at every place, by
// token.
Turn parse(std::string_view text, const Options& options = {}) {
  const Turn turn = parse_pieces({std::string(text)}, options);
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parse_pieces(bytes, options).blocks, turn.blocks) << "byte by byte: " << text;
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const Turn split =
        parse_pieces({std::string(text.substr(0, cut)), std::string(text.substr(cut))}, options);
    EXPECT_EQ(split.blocks, turn.blocks) << "cut at " << cut << ": " << text;
    EXPECT_EQ(split.output.text, turn.output.text);
    EXPECT_EQ(split.output.tool_calls.size(), turn.output.tool_calls.size());
  }
  const Turn by_token = parse_tokens(text, options);
  EXPECT_EQ(by_token.blocks, turn.blocks) << "by token: " << text;
  return by_token;
}

Block text(std::string bytes, bool malformed = false) {
  return {BlockKind::kText, std::move(bytes), {}, malformed};
}
Block reasoning(std::string bytes, bool malformed = false) {
  return {BlockKind::kReasoning, std::move(bytes), {}, malformed};
}
Block call(int index, std::string name, std::string arguments, bool malformed = false) {
  return {BlockKind::kToolCall,
          arguments,
          {"call_t_" + std::to_string(index), std::move(name), arguments},
          malformed};
}
using Blocks = std::vector<Block>;

// ---- well-formed output (section 4.1) ----

TEST(OutputParser, plain_content_is_one_text_block) {
  EXPECT_EQ(parse("Hello, \"wörld\" 😀\n\n\nbye\n\n").blocks,
            Blocks{text("Hello, \"wörld\" 😀\n\n\nbye\n\n")});
  EXPECT_EQ(parse("").blocks, Blocks{});
}

TEST(OutputParser, reasoning_ends_at_its_marker) {
  const Turn turn = parse("two\n\nparts\n</think>\n\nAnswer", {.reasoning = true});
  EXPECT_EQ(turn.blocks, (Blocks{reasoning("two\n\nparts\n"), text("\n\nAnswer")}));
  EXPECT_EQ(turn.output.reasoning, "two\n\nparts\n");
  EXPECT_EQ(turn.output.text, "\n\nAnswer");
  std::vector<TokenId> tokens;
  released_tokenizer()->encode_with_added_tokens("two\n\nparts\n</think>", tokens);
  EXPECT_EQ(turn.output.reasoning_tokens, static_cast<int>(tokens.size()));
}

TEST(OutputParser, empty_reasoning_has_no_block) {
  EXPECT_EQ(parse("</think>x", {.reasoning = true}).blocks, Blocks{text("x")});
}

TEST(OutputParser, parallel_calls_are_read_in_order) {
  const Turn turn = parse_tokens(
      "Checking both." +
          calls(invoke("get_weather", parameter("city", "Oslo") + parameter("days", "2", false)) +
                invoke("maps::route", parameter("to", "Bergen"))) +
          "<｜end▁of▁sentence｜>",
      {});
  EXPECT_EQ(turn.blocks, (Blocks{text("Checking both."),
                                 call(0, "get_weather", R"({"city": "Oslo", "days": 2})"),
                                 call(1, "maps::route", R"({"to": "Bergen"})")}));
  EXPECT_EQ(turn.output.tool_calls.size(), 2u);
}

TEST(OutputParser, calls_stream_as_arguments_json) {
  const std::string long_text = "line 1\n\tline \"2\" \\ <b>\x01\x7f é😀\n<\n</\n</｜\n<｜\n\n";
  const Turn turn = parse(
      calls(invoke("edit", parameter("path", "/tmp/a b.txt") + parameter("text", long_text)) +
            invoke("get_weather",
                   parameter("city", "") + parameter("days", "-1.50e3", false) +
                       parameter("deep", R"({"a": [1, {"b": "</x>\n"}], "c": null})", false)) +
            invoke("maps::route", "\n") + invoke("unknown::tool", parameter("é", "true", false))));
  EXPECT_EQ(
      turn.blocks,
      (Blocks{
          call(0, "edit", R"({"path": "/tmp/a b.txt", "text": )" + json_quoted(long_text) + "}"),
          call(1, "get_weather",
               R"({"city": "", "days": -1.50e3, "deep": {"a": [1, {"b": "</x>\n"}], "c": null}})"),
          call(2, "maps::route", "{}"), call(3, "unknown::tool", R"({"é": true})")}));
  EXPECT_EQ(turn.output.text, "");
  ASSERT_EQ(turn.output.tool_calls.size(), 4u);
  EXPECT_EQ(turn.output.tool_calls[2].name, "maps::route");
}

TEST(OutputParser, the_reasoning_text_and_calls_of_a_turn_come_in_order) {
  const Turn turn =
      parse("hm</think>Let me look." + calls(invoke("get_weather", parameter("city", "Oslo"))),
            {.reasoning = true});
  EXPECT_EQ(turn.blocks, (Blocks{reasoning("hm"), text("Let me look."),
                                 call(0, "get_weather", R"({"city": "Oslo"})")}));
}

TEST(OutputParser, only_two_line_breaks_before_the_block_belong_to_it) {
  const std::string block = calls(invoke("edit", "\n")).substr(2);
  for (const auto& [before, kept] : std::vector<std::pair<std::string, std::string>>{
           {"a\n\n\n\n", "a\n\n"}, {"a\n\n", "a"}, {"a\n", "a"}, {"a", "a"}, {"a\n ", "a\n "}}) {
    EXPECT_EQ(parse(before + block).blocks, (Blocks{text(kept), call(0, "edit", "{}")}));
  }
}

TEST(OutputParser, values_that_look_like_markup_stay_values) {
  for (const std::string value :
       {"</｜DSML｜ parameters>", "</｜DSML｜ param", "</｜DSML｜", "<｜DSML｜ calls>", "</｜DSML",
        "<<<", "</think>", "<think>", "a<", "a</", "<｜DSML｜ invoke>",
        "<｜DSML｜ parameter string=\"true\">"}) {
    EXPECT_EQ(parse(calls(invoke("edit", parameter("text", value)))).blocks,
              Blocks{call(0, "edit", R"({"text": )" + json_quoted(value) + "}")})
        << value;
  }
}

TEST(OutputParser, a_value_streams_before_its_end_is_known) {
  OutputParser parser = parser_for(*toy_tokenizer(), {});
  std::vector<OutputEvent> events;
  parser.push_text("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"edit\">\n", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kBlockBegin);
  EXPECT_EQ(events[0].tool_call.name, "edit");
  EXPECT_EQ(events[0].tool_call.id, "call_t_0");
  parser.push_text("<｜DSML｜ parameter name=\"text\" string=\"true\">ab\"c<", events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].bytes, "{\"text\": \"ab\\\"c");
  parser.push_text("/｜DSM", events);
  EXPECT_EQ(events.size(), 2u);
  parser.push_text("x", events);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].bytes, "</｜DSMx");
}

TEST(OutputParser, only_a_possible_marker_is_held_back) {
  OutputParser parser = parser_for(*released_tokenizer(), {});
  std::vector<OutputEvent> events;
  for (const std::string_view held : {"\n", "\n\n", "<", "\n\n<", "</", "<|DSML| inv"}) {
    events.clear();
    parser.push_text(held, events);
    EXPECT_TRUE(events.empty()) << held;
    parser.push_text("#", events);
    EXPECT_EQ(events.back().bytes, std::string(held) + "#");
  }
  for (const std::string_view free : {"a", " ", ">", "</b", "\n\nx", "<think>"}) {
    events.clear();
    parser.push_text(free, events);
    ASSERT_FALSE(events.empty()) << free;
    EXPECT_EQ(events.back().bytes, free);
  }
}

TEST(OutputParser, markers_spelled_in_ordinary_tokens_are_text) {
  const std::string quoted = "the </think> tag, <｜DSML｜ calls> and <｜end▁of▁sentence｜>";
  OutputParser parser = parser_for(*released_tokenizer(), {.reasoning = true});
  std::vector<TokenId> tokens;
  released_tokenizer()->encode_text(quoted, tokens);
  std::vector<OutputEvent> events;
  for (const TokenId token : tokens) parser.push(token, events);
  parser.finish(true, events);
  EXPECT_EQ(joined(events), Blocks{reasoning(quoted)});
}

TEST(OutputParser, hidden_markers_produce_no_bytes) {
  OutputParser parser = parser_for(*released_tokenizer(), {});
  std::vector<OutputEvent> events;
  for (const std::string_view marker :
       {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜System｜>",
        "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"}) {
    parser.push(*released_tokenizer()->added_token(marker), events);
  }
  EXPECT_TRUE(events.empty());
  parser.push(*released_tokenizer()->added_token("<｜box｜>"), events);
  parser.push(1 << 30, events);
  parser.push(-1, events);
  parser.finish(true, events);
  EXPECT_EQ(joined(events), Blocks{text("<｜box｜>")});
}

TEST(OutputParser, characters_split_over_tokens_arrive_whole) {
  for (const std::string value : {"😀é東京", "a\xff\xf0\x9f\x98z\xc3"}) {
    const Turn turn = parse_pieces({value}, {});
    std::vector<std::string> bytes;
    for (const char c : value) bytes.emplace_back(1, c);
    EXPECT_EQ(parse_pieces(bytes, {}).blocks, turn.blocks);
  }
  EXPECT_EQ(parse_pieces({"\xf0\x9f"}, {}).blocks, Blocks{text("\uFFFD")});
}

TEST(OutputParser, a_copy_continues_as_the_original_would_have) {
  const std::string output =
      "a" + calls(invoke("edit", parameter("path", "p") + parameter("text", "long\ntext"))) + "b";
  const Turn expected = parse_pieces({output}, {});
  for (std::size_t cut = 0; cut <= output.size(); ++cut) {
    OutputParser original = parser_for(*toy_tokenizer(), {});
    std::vector<OutputEvent> events;
    original.push_text(output.substr(0, cut), events);
    OutputParser copy = original;
    std::vector<OutputEvent> elsewhere;
    original.push_text("<｜DSML｜ garbage", elsewhere);
    original.finish(true, elsewhere);
    copy.push_text(output.substr(cut), events);
    copy.finish(true, events);
    EXPECT_EQ(joined(events), expected.blocks);
  }
}

TEST(OutputParser, nothing_follows_finish) {
  OutputParser parser = parser_for(*toy_tokenizer(), {});
  std::vector<OutputEvent> events;
  parser.push_text("a", events);
  parser.finish(true, events);
  const std::size_t n = events.size();
  parser.push_text("b", events);
  parser.push(7, events);
  parser.finish(false, events);
  EXPECT_EQ(events.size(), n);
}

TEST(OutputParser, tokens_out_of_range_have_no_bytes) {
  for (const Tokenizer* tokenizer : {toy_tokenizer(), released_tokenizer()}) {
    OutputParser parser = parser_for(*tokenizer, {.reasoning = true});
    std::vector<OutputEvent> events;
    for (const TokenId token : {-1, -2, tokenizer->size(), 1 << 30}) parser.push(token, events);
    parser.push_text("still reasoning", events);
    parser.finish(true, events);
    EXPECT_EQ(joined(events), Blocks{reasoning("still reasoning")});
  }
}

// ---- the table of section 4.2, row by row ----

TEST(OutputParser, length_inside_reasoning_leaves_all_of_it_reasoning) {
  const Turn turn = parse("so far\n\n", {.reasoning = true, .complete = false});
  EXPECT_EQ(turn.blocks, Blocks{reasoning("so far\n\n")});
  EXPECT_EQ(turn.output.text, "");
}

TEST(OutputParser, think_begin_is_swallowed_at_the_start_and_when_repeated) {
  EXPECT_EQ(parse("<think>a<think>b</think>c", {.reasoning = true}).blocks,
            (Blocks{reasoning("ab"), text("c")}));
  EXPECT_EQ(parse("a\n<think>b").blocks, Blocks{text("a\nb")});
}

TEST(OutputParser, think_end_in_content_is_swallowed_once) {
  const Turn turn = parse("a</think>b\n</think>c");
  EXPECT_EQ(turn.blocks, Blocks{text("ab\n</think>c")});
  EXPECT_EQ(turn.output.reasoning, "");
}

TEST(OutputParser, calls_inside_reasoning_close_it) {
  const Turn turn = parse("hm" + calls(invoke("edit", "\n")) + "after", {.reasoning = true});
  EXPECT_EQ(turn.blocks, (Blocks{reasoning("hm"), call(0, "edit", "{}"), text("after")}));
}

TEST(OutputParser, any_or_no_white_space_between_tags_is_accepted) {
  const Block expected = call(0, "get_weather", R"({"city": "Oslo", "days": 2})");
  EXPECT_EQ(parse("<｜DSML｜calls><｜DSML｜  invoke\n name = \"get_weather\" >"
                  "<｜DSML｜ parameter  name=\"city\"\tstring=\"true\" >Oslo</｜DSML｜parameter >"
                  "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜  parameter>"
                  "</｜DSML｜invoke></｜DSML｜calls >")
                .blocks,
            Blocks{expected});
  EXPECT_EQ(
      parse("<｜DSML｜ calls> \r\n\n\t<｜DSML｜ invoke name=\"get_weather\"> \n\n "
            "<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo</｜DSML｜ parameter>\n\n\n\n"
            "<｜DSML｜ parameter name=\"days\" string=\"false\">2</｜DSML｜ parameter> "
            "</｜DSML｜ invoke>\n\n\n\n</｜DSML｜ calls>  \n")
          .blocks,
      Blocks{expected});
}

TEST(OutputParser, older_and_ascii_spellings_are_the_same_tags) {
  const std::string good = calls(invoke("edit", parameter("path", "p")));
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string changed = good;
    for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size()) {
      changed.replace(at, from.size(), to);
    }
    return changed;
  };
  const Blocks expected = {call(0, "edit", R"({"path": "p"})")};
  EXPECT_EQ(parse(replaced("｜DSML｜ calls", "｜DSML｜tool_calls")).blocks, expected);
  EXPECT_EQ(parse(replaced("｜DSML｜ calls", "｜DSML｜function_calls")).blocks, expected);
  EXPECT_EQ(parse(replaced("｜DSML｜ ", "｜DSML｜")).blocks, expected);
  EXPECT_EQ(parse(replaced("｜DSML｜ ", "|DSML| ")).blocks, expected);
  EXPECT_EQ(parse(replaced("｜DSML｜ ", "|DSML|")).blocks, expected);
}

TEST(OutputParser, an_unclosed_parameter_ends_at_the_next_tag) {
  const std::string open = "<｜DSML｜ parameter name=\"path\" string=\"true\">a\nb";
  EXPECT_EQ(parse(calls(invoke("edit", open + "\n" + parameter("text", "t")))).blocks,
            Blocks{call(0, "edit", R"({"path": "a\nb", "text": "t"})", true)});
  EXPECT_EQ(parse(calls(invoke("edit", open + "\n"))).blocks,
            Blocks{call(0, "edit", R"({"path": "a\nb"})", true)});
  EXPECT_EQ(parse(calls("<｜DSML｜ invoke name=\"edit\">\n" + open + "\n")).blocks,
            Blocks{call(0, "edit", R"({"path": "a\nb"})", true)});
  EXPECT_EQ(
      parse(calls("<｜DSML｜ invoke name=\"edit\">\n" + open + "\n" + invoke("get_weather", "\n")))
          .blocks,
      (Blocks{call(0, "edit", R"({"path": "a\nb"})", true), call(1, "get_weather", "{}")}));
}

TEST(OutputParser, a_call_that_the_end_cuts_is_dropped_unless_it_has_what_is_required) {
  const std::string begin = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n";
  const std::string city = "<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo";
  struct Case {
    std::string output;
    std::string arguments;
    bool kept_at_end, kept_at_length;
  };
  for (const Case& c :
       {Case{begin, "{}", false, false}, Case{begin + city, R"({"city": "Oslo"})", true, false},
        Case{begin + city + "</｜DSML｜ para", R"({"city": "Oslo"})", true, true},
        Case{begin + parameter("city", "Oslo"), R"({"city": "Oslo"})", true, true},
        Case{begin + parameter("city", "Oslo") + "<｜DSML｜ parameter na", R"({"city": "Oslo"})",
             true, true},
        Case{begin + parameter("days", "1", false), R"({"days": 1})", false, false},
        Case{begin + parameter("city", "Oslo") + "</｜DSML｜ inv", R"({"city": "Oslo"})", true,
             true}}) {
    for (const bool complete : {true, false}) {
      const Turn turn = parse(c.output, {.complete = complete});
      EXPECT_EQ(turn.blocks, Blocks{call(0, "get_weather", c.arguments, true)}) << c.output;
      EXPECT_EQ(turn.output.tool_calls.size(),
                (complete ? c.kept_at_end : c.kept_at_length) ? 1u : 0u)
          << c.output << complete;
      EXPECT_EQ(turn.output.text, "");
    }
  }
  const Turn unknown =
      parse("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"other\">\n" + parameter("a", "b"));
  EXPECT_TRUE(unknown.output.tool_calls.empty());
}

TEST(OutputParser, the_end_of_the_block_closes_a_call) {
  const Turn turn =
      parse(calls("<｜DSML｜ invoke name=\"edit\">\n" + parameter("path", "p")) + "after");
  EXPECT_EQ(turn.blocks, (Blocks{call(0, "edit", R"({"path": "p"})", true), text("after")}));
  EXPECT_EQ(turn.output.tool_calls.size(), 1u);
}

TEST(OutputParser, invalid_json_is_kept_as_a_string) {
  EXPECT_EQ(parse(calls(invoke("get_weather", parameter("days", "two \"or\" 3", false)))).blocks,
            Blocks{call(0, "get_weather", R"({"days": "two \"or\" 3"})", true)});
  EXPECT_EQ(parse(calls(invoke("get_weather", parameter("days", "", false)))).blocks,
            Blocks{call(0, "get_weather", R"({"days": ""})", true)});
}

TEST(OutputParser, swapped_attributes_are_read) {
  EXPECT_EQ(parse(calls(invoke("get_weather",
                               "<｜DSML｜ parameter string=\"false\" name=\"days\">3"
                               "</｜DSML｜ parameter>\n")))
                .blocks,
            Blocks{call(0, "get_weather", R"({"days": 3})")});
}

TEST(OutputParser, without_the_string_attribute_the_schema_decides) {
  const auto value = [](std::string_view tool, std::string_view key, std::string_view value) {
    const Turn turn =
        parse(calls(invoke(tool, "<｜DSML｜ parameter name=\"" + std::string(key) + "\">" +
                                     std::string(value) + "</｜DSML｜ parameter>\n")));
    EXPECT_EQ(turn.blocks.size(), 1u);
    return turn.blocks.empty() ? "" : turn.blocks[0].bytes;
  };
  EXPECT_EQ(value("get_weather", "city", "12"), R"({"city": "12"})");
  EXPECT_EQ(value("get_weather", "unit", "12"), R"({"unit": "12"})");
  EXPECT_EQ(value("get_weather", "days", "12"), R"({"days": 12})");
  EXPECT_EQ(value("get_weather", "days", "true"), R"({"days": true})");
  EXPECT_EQ(value("get_weather", "days", "many"), R"({"days": "many"})");
  EXPECT_EQ(value("other", "x", "12"), R"({"x": 12})");
  EXPECT_EQ(value("other", "x", "[1, 2]"), R"({"x": [1, 2]})");
  EXPECT_EQ(value("other", "x", "true"), R"({"x": "true"})");
  EXPECT_EQ(value("other", "x", "null"), R"({"x": "null"})");
  EXPECT_EQ(value("other", "x", "plain"), R"({"x": "plain"})");
}

TEST(OutputParser, a_json_object_as_body_is_the_arguments) {
  EXPECT_EQ(parse(calls(invoke("edit", " {\"path\": \"a  b\",\n \"text\": \"<x>\"}\n"))).blocks,
            Blocks{call(0, "edit", "{\"path\": \"a  b\",\n \"text\": \"<x>\"}", true)});
  EXPECT_EQ(parse(calls(invoke("edit", "{}\n"))).blocks, Blocks{call(0, "edit", "{}", true)});
  EXPECT_EQ(parse(calls(invoke("edit", "open the file\n"))).blocks,
            Blocks{call(0, "edit", R"({"arguments": "open the file"})", true)});
  EXPECT_EQ(parse(calls(invoke("edit", "{\"a>b\": 1}\n"))).blocks,
            Blocks{call(0, "edit", R"({"arguments": "{\"a>b\": 1}"})", true)});
  EXPECT_EQ(parse(calls(invoke("edit", "junk " + parameter("path", "p")))).blocks,
            Blocks{call(0, "edit", R"({"path": "p"})", true)});
  const std::string cut =
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"edit\">\n{\"path\": \"p\", \"text\": \"t\"";
  EXPECT_TRUE(parse(cut, {.complete = false}).output.tool_calls.empty());
  EXPECT_EQ(parse(cut + "}", {.complete = false}).output.tool_calls.size(), 1u);
}

TEST(OutputParser, a_lone_wrapper_parameter_is_unwrapped_if_the_schema_has_its_keys) {
  for (const std::string key : {"arguments", "input"}) {
    for (const bool is_string : {true, false}) {
      EXPECT_EQ(parse(calls(invoke("edit", parameter(key, R"({"path": "p"})", is_string)))).blocks,
                Blocks{call(0, "edit", R"({"path": "p"})", true)});
    }
    EXPECT_EQ(parse(calls(invoke("edit", parameter(key, R"({"x": 1})", false)))).blocks,
              Blocks{call(0, "edit", "{\"" + key + R"(": {"x": 1}})")});
    EXPECT_EQ(parse(calls(invoke("edit", parameter(key, R"({"path": "p"})", false) +
                                             parameter("text", "t"))))
                  .blocks,
              Blocks{call(0, "edit", "{\"" + key + R"(": {"path": "p"}, "text": "t"})")});
    EXPECT_EQ(parse(calls(invoke("other", parameter(key, R"({"path": "p"})", false)))).blocks,
              Blocks{call(0, "other", "{\"" + key + R"(": {"path": "p"}})")});
  }
}

TEST(OutputParser, a_repeated_parameter_keeps_its_last_value) {
  const Turn turn = parse(calls(
      invoke("edit", parameter("path", "a") + parameter("text", "t") + parameter("path", "b"))));
  ASSERT_EQ(turn.blocks.size(), 1u);
  EXPECT_TRUE(turn.blocks[0].malformed);
  EXPECT_EQ(turn.blocks[0].call.arguments_json, R"({"path": "b", "text": "t"})");
  EXPECT_EQ(turn.blocks[0].bytes, R"({"path": "a", "text": "t", "path": "b"})");
}

TEST(OutputParser, an_invoke_without_block_counts_if_its_tool_is_declared) {
  const std::string declared = invoke("edit", parameter("path", "p"));
  EXPECT_EQ(parse("a\n\n" + declared + declared).blocks,
            (Blocks{text("a"), call(0, "edit", R"({"path": "p"})"),
                    call(1, "edit", R"({"path": "p"})")}));
  EXPECT_EQ(parse(declared + "</｜DSML｜ calls>").blocks,
            Blocks{call(0, "edit", R"({"path": "p"})")});
  EXPECT_EQ(parse(declared + "b").blocks,
            (Blocks{call(0, "edit", R"({"path": "p"})"), text("\nb")}));
  const std::string other = invoke("other", parameter("path", "p"));
  EXPECT_EQ(parse("a\n" + other).blocks, Blocks{text("a\n" + other, true)});
}

TEST(OutputParser, an_unknown_tool_is_passed_on) {
  EXPECT_EQ(parse(calls(invoke("a::b::c", "\n"))).blocks, Blocks{call(0, "a::b::c", "{}")});
}

TEST(OutputParser, text_and_blocks_after_a_block_are_appended) {
  const std::string block = calls(invoke("edit", "\n"));
  const Turn turn = parse("a" + block + "\nb" + block + block + "\n\n");
  EXPECT_EQ(turn.blocks, (Blocks{text("a"), call(0, "edit", "{}"), text("\nb"),
                                 call(1, "edit", "{}"), call(2, "edit", "{}")}));
  EXPECT_EQ(turn.output.text, "a\nb");
  EXPECT_EQ(turn.output.tool_calls.size(), 3u);
}

TEST(OutputParser, markup_that_cannot_be_parsed_is_malformed_text) {
  for (const std::string raw :
       {"\n\n<｜DSML｜ calls>\n</｜DSML｜ calls>", "\n\n<｜DSML｜ calls>\nno call here",
        "\n\n<｜DSML｜ calls>\nno call here\n</｜DSML｜ calls>", "<｜DSML｜ call>", "<｜DSML｜",
        "</｜DSML｜ invoke>", "</｜DSML｜ calls>x", "<｜DSML｜ invoke name=\"\">",
        "<｜DSML｜ invoke>",
        "<｜DSML｜ parameter name=\"a\" string=\"true\">v</｜DSML｜ parameter>",
        "\n\n<｜DSML｜ calls>", "x\n\n<｜DSML｜ cal",
        "\n\n<｜DSML｜ calls>\n\n<｜DSML｜ invoke name=\"e"}) {
    EXPECT_EQ(parse(raw).blocks, Blocks{text(raw, true)});
  }
  EXPECT_EQ(parse_tokens("a｜DSML｜b", {}).blocks, Blocks{text("a｜DSML｜b", true)});
}

TEST(OutputParser, markup_cut_by_length_is_not_shown) {
  for (const std::string cut :
       {"\n\n<｜DSML｜ cal", "\n\n<｜DSML｜ calls>", "\n\n<｜DSML｜ calls>\n",
        "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"ed"}) {
    EXPECT_EQ(parse("a" + cut, {.complete = false}).blocks, Blocks{text("a", true)}) << cut;
  }
  EXPECT_EQ(parse("a\n\n<", {.complete = false}).blocks, Blocks{text("a\n\n<")});
}

TEST(OutputParser, text_between_the_calls_of_a_block_is_malformed_text) {
  const std::string one = invoke("edit", "\n");
  EXPECT_EQ(parse(calls(one + "and then" + one)).blocks,
            (Blocks{call(0, "edit", "{}"), text("\nand then", true), call(1, "edit", "{}")}));
}

TEST(OutputParser, a_tag_of_unreasonable_length_is_text) {
  const std::string name(kMaxMarkupBytes, 'x');
  const std::string raw = "<｜DSML｜ invoke name=\"" + name + "\">";
  EXPECT_EQ(parse_pieces({raw}, {}).blocks, Blocks{text(raw, true)});
  std::vector<std::string> bytes;
  for (const char c : raw) bytes.emplace_back(1, c);
  EXPECT_EQ(parse_pieces(bytes, {}).blocks, Blocks{text(raw, true)});
}

// ---- golden conversations ----

// What the model said in a golden prompt: between the header of an answer and its end, with the
// message that holds it. Answers whose reasoning the format dropped have none to compare.
struct GoldenOutput {
  std::string text;
  bool reasoning = false;
  Message message;
  std::string tools;
};

std::vector<GoldenOutput> golden_outputs() {
  constexpr std::string_view kAnswer = "<｜Assistant｜>", kEnd = "<｜end▁of▁sentence｜>";
  std::vector<GoldenOutput> outputs;
  const auto cases = parse_json(tests::read_file(CAIRN_TEST_DATA "/prompts/golden_prompts.json"));
  for (const JsonValue& c : cases->items) {
    const std::string prompt = c.find("prompt")->text;
    const auto messages = parse_messages(to_python_json(*c.find("messages")));
    std::size_t at = 0;
    std::string tools;
    for (const Message& message : *messages) {
      if (!message.tools_json.empty()) tools = message.tools_json;
      if (message.role != Role::kAssistant) continue;
      const std::size_t begin = prompt.find(kAnswer, at) + kAnswer.size();
      const std::size_t end = prompt.find(kEnd, begin);
      EXPECT_NE(end, std::string::npos);
      at = end;
      std::string text = prompt.substr(begin, end - begin);
      const bool reasoning = text.starts_with("<think>");
      text.erase(0, reasoning ? 7 : 8);  // the marker belongs to the prompt
      outputs.push_back({std::move(text), reasoning, message, tools});
    }
  }
  return outputs;
}

TEST(OutputParser, golden_outputs_give_back_their_messages_however_they_are_split) {
  const std::vector<GoldenOutput> outputs = golden_outputs();
  EXPECT_GE(outputs.size(), 5U);
  for (const GoldenOutput& output : outputs) {
    SCOPED_TRACE(output.text);
    const Options options = {.reasoning = output.reasoning, .tools = output.tools};
    const Turn turn = parse(output.text, options);
    EXPECT_EQ(turn.output.reasoning, output.reasoning ? output.message.reasoning : "");
    const std::string text = output.message.content.empty() ? "" : output.message.content[0].text;
    EXPECT_EQ(turn.output.text, text);
    ASSERT_EQ(turn.output.tool_calls.size(), output.message.tool_calls.size());
    for (std::size_t i = 0; i < turn.output.tool_calls.size(); ++i) {
      EXPECT_EQ(turn.output.tool_calls[i].name, output.message.tool_calls[i].name);
      EXPECT_EQ(turn.output.tool_calls[i].arguments_json,
                output.message.tool_calls[i].arguments_json);
    }

    std::vector<TokenId> tokens;
    released_tokenizer()->encode_with_added_tokens(output.text, tokens);
    for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {  // as a resumed turn goes on
      OutputParser parser = parser_for(*released_tokenizer(), options);
      std::vector<OutputEvent> events;
      for (std::size_t i = 0; i < cut; ++i) parser.push(tokens[i], events);
      OutputParser other = parser;
      for (std::size_t i = cut; i < tokens.size(); ++i) other.push(tokens[i], events);
      other.finish(true, events);
      EXPECT_EQ(joined(events), turn.blocks) << "cut at token " << cut;
    }
  }
}

// ---- garbage ----

TEST(OutputParser, garbage_parses_the_same_however_it_is_split) {
  std::mt19937 random(411);
  const std::vector<std::string> pieces = {"a",
                                           " ",
                                           "\n",
                                           "<",
                                           "</",
                                           "<think>",
                                           "</think>",
                                           "<｜DSML｜",
                                           "</｜DSML｜",
                                           "<|DSML|",
                                           " calls>",
                                           " invoke name=\"edit\">",
                                           " invoke name=\"x\">",
                                           " invoke>",
                                           " parameter>",
                                           " parameter name=\"path\" string=\"true\">",
                                           " parameter name=\"n\" string=\"false\">",
                                           " parameter name=\"n\">",
                                           "{\"path\": 1}",
                                           "\"",
                                           "12",
                                           "é",
                                           "😀",
                                           "</｜DSML｜ parameter>",
                                           "</｜DSML｜ invoke>",
                                           "</｜DSML｜ calls>",
                                           "<｜DSML｜ calls>",
                                           "<｜DSML｜ invoke name=\"edit\">",
                                           "<｜DSML｜ parameter name=\"text\" string=\"true\">",
                                           "\n\n"};
  for (int round = 0; round < 4000; ++round) {
    std::string output;
    for (auto n = random() % 25; n > 0; --n) output += pieces[random() % pieces.size()];
    const Options options = {.reasoning = random() % 2 == 0, .complete = random() % 2 == 0};
    const Turn whole = parse_pieces({output}, options);
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < output.size();) {
      const std::size_t n = random() % 7 + 1;
      parts.push_back(output.substr(at, n));
      at += n;
    }
    ASSERT_EQ(parse_pieces(parts, options).blocks, whole.blocks) << round << ": " << output;
    for (const Block& block : whole.blocks) {
      if (block.kind != BlockKind::kToolCall) continue;
      const auto bytes = parse_json(block.bytes);
      ASSERT_TRUE(bytes.ok()) << output;
      const auto arguments = parse_json(block.call.arguments_json);
      ASSERT_EQ(to_python_json(*bytes), to_python_json(*arguments)) << output;
    }
  }
}

TEST(OutputParser, random_bytes_and_tokens_never_crash) {
  std::mt19937 random(412);
  for (int round = 0; round < 500; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    parse_pieces({bytes}, {.reasoning = random() % 2 == 0});

    OutputParser parser = parser_for(*released_tokenizer(), {});
    std::vector<OutputEvent> events;
    for (int i = 0; i < 100; ++i) {
      const bool marker = random() % 3 == 0;
      parser.push(marker ? 128800 + static_cast<TokenId>(random() % 40)
                         : static_cast<TokenId>(random() % 129280),
                  events);
    }
    parser.finish(random() % 2 == 0, events);
    joined(events);
  }
}

TEST(OutputParser, ordinary_text_is_never_lost) {
  std::mt19937 random(413);
  const std::vector<std::string> pieces = {"a",      " ",      "\n", "<",  "</",    "<th",
                                           "</thin", "<｜DSM", ">",  "｜", "|DSML", "\n\n",
                                           "calls>", "é",      "😀",  "\t", "<|"};
  for (int round = 0; round < 2000; ++round) {
    std::string output;
    for (auto n = random() % 30; n > 0; --n) output += pieces[random() % pieces.size()];
    if (output.find("<think>") != std::string::npos || output.find("DSML｜") != std::string::npos ||
        output.find("DSML|") != std::string::npos) {
      continue;
    }
    for (const bool thinking : {false, true}) {
      const Turn turn =
          parse_pieces({output}, {.reasoning = thinking, .complete = random() % 2 == 0});
      ASSERT_EQ(thinking ? turn.output.reasoning : turn.output.text, output);
      for (const Block& block : turn.blocks) ASSERT_FALSE(block.malformed);
    }
  }
}

}  // namespace
}  // namespace cairn::engine
