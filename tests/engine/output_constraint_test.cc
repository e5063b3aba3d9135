// Constrained messages as the output parser reads them: calls are whole, name declared tools, and
// their arguments meet the schemas.
#include "engine/output_constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/output_parser.h"
#include "engine/tool_schema.h"
#include "tests/support/released_tokenizer.h"
#include "tests/support/schema_text.h"

namespace cairn::engine {
namespace {

constexpr char kTools[] = R"([
 {"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{
   "path":{"type":"string","pattern":"^[a-z/]{1,12}$"},"text":{"type":"string","maxLength":30},
   "mode":{"type":"integer","minimum":0,"maximum":511},"tags":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":3},
   "either":{"type":["string","boolean","null"],"maxLength":5}},"required":["path","text"],"additionalProperties":false}}},
 {"type":"function","namespace":"maps","function":{"name":"route","parameters":{"type":"object","properties":{
   "to":{"enum":["port","town"]},"via":{"type":"object","properties":{"x":{"type":"number","minimum":0,"maximum":1}},"required":["x"],"additionalProperties":false}},
   "required":["to"]}}},
 {"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{},"additionalProperties":{"type":"integer","minimum":1,"maximum":9}}}},
 {"type":"function","function":{"name":"stop"}}])";

std::shared_ptr<ConstraintVocabulary> vocabulary_of(const Tokenizer& tokenizer) {
  const auto vocabulary = ConstraintVocabulary::create(tokenizer, {}, 1, tokenizer.size());
  EXPECT_TRUE(vocabulary.ok());
  return *vocabulary;
}

struct Vocabulary {
  const Tokenizer& tokenizer;
  std::shared_ptr<ConstraintVocabulary> constraints;
};

const std::vector<Vocabulary>& vocabularies() {
  static const std::vector<Vocabulary> kVocabularies = {
      {*tests::toy_tokenizer(), vocabulary_of(*tests::toy_tokenizer())},
      {*tests::released_tokenizer(), vocabulary_of(*tests::released_tokenizer())}};
  return kVocabularies;
}

struct Message {
  std::vector<TokenId> tokens;
  bool ended = false;
};

// Texts that end something or begin a call: by single random tokens they would hardly come about.
const std::vector<std::string> kMoves = {"</think>",
                                         "</｜DSML｜ parameter>\n",
                                         "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
                                         "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"",
                                         "\"",
                                         "}",
                                         "]"};

// Draws allowed tokens, and the moves where they are allowed: often, and after `n_free` tokens
// always.
Message draw_message(const Vocabulary& vocabulary,
                     const std::shared_ptr<OutputConstraint>& constraint, std::mt19937_64& random,
                     int n_free, int max_tokens) {
  const TokenTrie& trie = vocabulary.constraints->masker.trie();
  ConstraintState state(constraint);
  Message message;
  const auto say = [&](const std::string& text) {
    std::vector<TokenId> tokens;
    vocabulary.tokenizer.encode_with_added_tokens(text, tokens);
    ConstraintState copy = state;
    for (const TokenId token : tokens) {
      if (!copy.advance(token).ok()) return false;
    }
    state = copy;
    message.tokens.insert(message.tokens.end(), tokens.begin(), tokens.end());
    return true;
  };
  while (static_cast<int>(message.tokens.size()) < max_tokens) {
    const auto mask = state.mask();
    const int n = tests::n_allowed(*mask);
    if (state.may_end() && (n == 1 || random() % 3 == 0)) {
      message.tokens.push_back(trie.eos());
      message.ended = state.advance(trie.eos()).ok();
      return message;
    }
    if (random() % 3 == 0 || static_cast<int>(message.tokens.size()) > n_free) {
      std::vector<std::string> moves = kMoves;
      std::ranges::shuffle(moves, random);
      if (std::ranges::any_of(moves, say)) continue;
    }
    const TokenId chosen =
        tests::allowed_token(*mask, static_cast<int>(random() % static_cast<unsigned>(n)));
    if (chosen == trie.eos()) continue;
    if (!state.advance(chosen).ok()) return message;
    message.tokens.push_back(chosen);
  }
  return message;
}

struct Parsed {
  ParsedOutput output;
  bool malformed = false;
};

Parsed parse(const Vocabulary& vocabulary, const OutputConstraintOptions& options,
             const Message& message) {
  OutputParser parser(vocabulary.tokenizer, {.starts_in_reasoning = options.starts_in_reasoning,
                                             .tools_json = options.tools_json,
                                             .call_id_prefix = "c"});
  std::vector<OutputEvent> events;
  for (const TokenId token : message.tokens) parser.push(token, events);
  parser.finish(message.ended, events);
  Parsed parsed{parser.output()};
  for (const OutputEvent& event : events) parsed.malformed |= event.malformed;
  return parsed;
}

const std::map<std::string, tests::SchemaText>& argument_schemas() {
  static const std::map<std::string, tests::SchemaText> kSchemas = [] {
    std::map<std::string, tests::SchemaText> schemas;
    const auto functions = parse_tools(kTools);
    for (const JsonValue& function : *functions) {
      const JsonValue* parameters = function.find("parameters");
      const std::string schema = parameters == nullptr
                                     ? R"({"type":"object","additionalProperties":false})"
                                     : to_python_json(*parameters);
      schemas.emplace(function.find("name")->text, *tests::SchemaText::compile(schema));
    }
    return schemas;
  }();
  return kSchemas;
}

void check_calls(const Parsed& parsed, const std::string& only, std::map<std::string, int>& n) {
  EXPECT_FALSE(parsed.malformed);
  for (const ToolCall& call : parsed.output.tool_calls) {
    const auto schema = argument_schemas().find(call.name);
    ASSERT_NE(schema, argument_schemas().end()) << call.name;
    EXPECT_TRUE(schema->second.accepts(call.arguments_json)) << call.name << call.arguments_json;
    EXPECT_TRUE(only.empty() || call.name == only) << call.name;
    ++n[call.name];
  }
}

TEST(OutputConstraint, forced_calls_are_whole_and_meet_their_schemas) {
  std::mt19937_64 random(21);
  for (const Vocabulary& vocabulary : vocabularies()) {
    for (const std::string name : {"", "write_file", "maps::route", "stop"}) {
      for (const bool thinking : {false, true}) {
        OutputConstraintOptions options;
        options.tools_json = kTools;
        options.starts_in_reasoning = thinking;
        options.rules.tool_choice = name.empty() ? ToolChoice::kRequired : ToolChoice::kNamed;
        options.rules.tool_name = name;
        const auto constraint = OutputConstraint::create(vocabulary.constraints, options);
        ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
        std::map<std::string, int> n;
        int n_ended = 0;
        for (int i = 0; i < 25; ++i) {
          const Message message = draw_message(vocabulary, *constraint, random, 200, 1500);
          const Parsed parsed = parse(vocabulary, options, message);
          if (!message.ended) continue;
          ++n_ended;
          check_calls(parsed, name, n);
          EXPECT_FALSE(parsed.output.tool_calls.empty());
          EXPECT_EQ(parsed.output.text, "");
        }
        EXPECT_GE(n_ended, 20) << name;
        EXPECT_EQ(n.size(), name.empty() ? 4u : 1u);
      }
    }
  }
}

TEST(OutputConstraint, free_messages_call_as_they_like_and_only_rightly) {
  std::mt19937_64 random(22);
  for (const Vocabulary& vocabulary : vocabularies()) {
    OutputConstraintOptions options;
    options.tools_json = kTools;
    const auto constraint = OutputConstraint::create(vocabulary.constraints, options);
    ASSERT_TRUE(constraint.ok());
    std::map<std::string, int> n;
    int n_texts = 0;
    for (int i = 0; i < 150; ++i) {
      const Message message = draw_message(vocabulary, *constraint, random, 100, 1000);
      if (!message.ended) continue;
      const Parsed parsed = parse(vocabulary, options, message);
      check_calls(parsed, "", n);
      n_texts += !parsed.output.text.empty();
    }
    EXPECT_GT(n_texts, 20);
    std::printf("%d texts; calls:", n_texts);
    for (const auto& [name, count] : n) std::printf(" %s %d", name.c_str(), count);
    std::printf("\n");
  }
}

TEST(OutputConstraint, without_tools_nothing_is_a_call) {
  std::mt19937_64 random(23);
  for (const Vocabulary& vocabulary : vocabularies()) {
    OutputConstraintOptions options;
    options.tools_json = kTools;
    options.rules.tool_choice = ToolChoice::kNone;
    options.starts_in_reasoning = true;
    const auto constraint = OutputConstraint::create(vocabulary.constraints, options);
    ASSERT_TRUE(constraint.ok());
    for (int i = 0; i < 60; ++i) {
      const Message message = draw_message(vocabulary, *constraint, random, 100, 200);
      const Parsed parsed = parse(vocabulary, options, message);
      EXPECT_TRUE(parsed.output.tool_calls.empty());
      EXPECT_FALSE(parsed.malformed);
    }
  }
}

TEST(OutputConstraint, a_response_format_makes_all_of_the_text_json) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"n":{"type":"integer"}},"required":["n"],"additionalProperties":false})";
  const auto text = tests::SchemaText::compile(schema);
  ASSERT_TRUE(text.ok());
  std::mt19937_64 random(24);
  for (const Vocabulary& vocabulary : vocabularies()) {
    for (const bool has_tools : {false, true}) {
      OutputConstraintOptions options;
      options.rules.response_format_json = schema;
      options.starts_in_reasoning = true;
      if (has_tools) options.tools_json = kTools;
      const auto constraint = OutputConstraint::create(vocabulary.constraints, options);
      ASSERT_TRUE(constraint.ok());
      int n_texts = 0;
      for (int i = 0; i < 60; ++i) {
        const Message message = draw_message(vocabulary, *constraint, random, 200, 1000);
        if (!message.ended) continue;
        const Parsed parsed = parse(vocabulary, options, message);
        std::map<std::string, int> n;
        check_calls(parsed, "", n);
        if (parsed.output.text.empty()) {
          EXPECT_TRUE(has_tools && !parsed.output.tool_calls.empty());
          continue;
        }
        ++n_texts;
        EXPECT_TRUE(parsed.output.tool_calls.empty());
        EXPECT_TRUE(text->accepts(parsed.output.text)) << parsed.output.text;
      }
      EXPECT_GT(n_texts, 5);
    }
  }
}

TEST(OutputConstraint, the_canonical_form_of_section_4_1_is_accepted) {
  const Vocabulary& vocabulary = vocabularies().back();
  OutputConstraintOptions options;
  options.tools_json = kTools;
  const auto constraint = OutputConstraint::create(vocabulary.constraints, options);
  ASSERT_TRUE(constraint.ok());
  const auto accepted = [&](const std::string& text) {
    std::vector<TokenId> tokens;
    vocabulary.tokenizer.encode_with_added_tokens(text, tokens);
    ConstraintState state(*constraint);
    for (const TokenId token : tokens) {
      if (!state.advance(token).ok()) return false;
    }
    return state.may_end();
  };
  const std::string write =
      "<｜DSML｜ invoke name=\"write_file\">\n"
      "<｜DSML｜ parameter name=\"text\" string=\"true\">a < b\n</x></｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"mode\" string=\"false\">420</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"path\" string=\"true\">a/b</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n";
  const std::string begin = "Now.\n\n<｜DSML｜ calls>\n", end = "</｜DSML｜ calls>";
  EXPECT_TRUE(accepted("Just text, a < b."));
  EXPECT_TRUE(accepted(begin + write + write + end));
  EXPECT_TRUE(accepted(begin + "<｜DSML｜ invoke name=\"stop\">\n\n</｜DSML｜ invoke>\n" + end));
  EXPECT_TRUE(accepted(begin + "<｜DSML｜ invoke name=\"stop\">\n</｜DSML｜ invoke>\n" + end));
  EXPECT_FALSE(accepted(begin + write));                 // not ended
  EXPECT_FALSE(accepted(begin + end));                   // no call
  EXPECT_FALSE(accepted(begin + write + end + "more"));  // text after the block
  EXPECT_FALSE(accepted(begin + "<｜DSML｜ invoke name=\"none\">\n</｜DSML｜ invoke>\n" + end));
  EXPECT_FALSE(
      accepted(begin + "<｜DSML｜ invoke name=\"write_file\">\n</｜DSML｜ invoke>\n" + end));
  EXPECT_FALSE(accepted("<|DSML| calls>"));
  std::string wrong = write;
  wrong.replace(wrong.find("420"), 3, "999");
  EXPECT_FALSE(accepted(begin + wrong + end));
  wrong = write;
  wrong.replace(wrong.find("string=\"false\""), 14, "string=\"true\"");
  EXPECT_FALSE(accepted(begin + wrong + end));
  wrong = write;
  wrong.replace(wrong.find("mode"), 4, "mood");
  EXPECT_FALSE(accepted(begin + wrong + end));
}

TEST(OutputConstraint, what_cannot_be_followed_is_refused) {
  const auto refusal = [](const OutputConstraintOptions& options) {
    return OutputConstraint::create(vocabularies().front().constraints, options).status();
  };
  OutputConstraintOptions options;
  options.rules.tool_choice = ToolChoice::kRequired;
  EXPECT_EQ(refusal(options).code(), StatusCode::kInvalidArgument);
  options.tools_json = kTools;
  options.rules.tool_choice = ToolChoice::kNamed;
  options.rules.tool_name = "nothing";
  EXPECT_EQ(refusal(options).code(), StatusCode::kNotFound);
  options.rules.tool_choice = ToolChoice::kAuto;
  options.tools_json = R"([{"type":"function","function":{"name":"t","parameters":{"type":"object",
      "properties":{"p":{"contains":{}}}}}}])";
  EXPECT_EQ(refusal(options).code(), StatusCode::kUnsupported);
  EXPECT_NE(refusal(options).message().find("tool 't' at #/properties/p/contains: keyword 'contains'"),
            std::string::npos)
      << refusal(options).message();
  options.tools_json = R"([{"type":"function","function":{"name":"t","parameters":{"type":"object",
      "properties":{"p":false},"required":["p"]}}}])";
  EXPECT_EQ(refusal(options).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refusal(options).message().find("tool 't'"), std::string::npos);
  options.tools_json = R"([{"type":"function","function":{"name":"t","parameters":{"type":"object",
      "required":["a\"b"]}}}])";  // a name that no tag can carry
  EXPECT_EQ(refusal(options).code(), StatusCode::kInvalidArgument);
  options.tools_json.clear();
  options.rules.response_format_json = "false";
  EXPECT_EQ(refusal(options).code(), StatusCode::kInvalidArgument);
  options.rules.response_format_json = R"({"unevaluatedItems":false})";
  EXPECT_NE(refusal(options).message().find("unevaluatedItems"), std::string::npos);
}

}  // namespace
}  // namespace cairn::engine
