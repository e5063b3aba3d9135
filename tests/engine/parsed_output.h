// Runs an output parser and joins its events into blocks; their grammar is checked on the way.
#ifndef CAIRN_TESTS_ENGINE_PARSED_OUTPUT_H_
#define CAIRN_TESTS_ENGINE_PARSED_OUTPUT_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output_parser.h"
#include "engine/python_json.h"
#include "tests/support/released_tokenizer.h"

namespace cairn::engine {

inline constexpr std::string_view kTools = R"([
  {"function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": ["string", "null"]},
      "deep": {"type": "object"}}, "required": ["city"]}}},
  {"function": {"name": "edit", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "text": {"type": "string"}}, "required": ["path", "text"]}}},
  {"namespace": "maps", "function": {"name": "route", "parameters": {"type": "object",
      "properties": {"to": {"type": "string"}}}}}])";

struct Block {
  BlockKind kind;
  std::string bytes;
  ToolCall call;
  bool malformed = false;
  friend bool operator==(const Block& a, const Block& b) {
    return a.kind == b.kind && a.bytes == b.bytes && a.malformed == b.malformed &&
           a.call.id == b.call.id && a.call.name == b.call.name &&
           a.call.arguments_json == b.call.arguments_json;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Block& b) {
  return out << "{kind " << static_cast<int>(b.kind) << " '" << b.bytes << "' " << b.call.id << " "
             << b.call.name << " " << b.call.arguments_json << (b.malformed ? " malformed" : "")
             << "}";
}

// Joins events into blocks and checks their grammar on the way.
inline std::vector<Block> joined(const std::vector<OutputEvent>& events) {
  std::vector<Block> blocks;
  bool open = false;
  for (const OutputEvent& event : events) {
    if (event.kind == EventKind::kBlockBegin) {
      EXPECT_FALSE(open);
      EXPECT_EQ(event.block, static_cast<int>(blocks.size()));
      blocks.push_back({event.block_kind, "", event.tool_call});
      open = true;
      continue;
    }
    EXPECT_TRUE(open);
    if (blocks.empty()) break;
    Block& block = blocks.back();
    EXPECT_EQ(event.block, static_cast<int>(blocks.size()) - 1);
    EXPECT_EQ(event.block_kind, block.kind);
    if (event.kind == EventKind::kBlockBytes) {
      EXPECT_FALSE(event.bytes.empty());
      Utf8Assembler whole;  // every event carries whole characters
      EXPECT_EQ(whole.append(event.bytes), event.bytes);
      block.bytes += event.bytes;
    } else {
      EXPECT_EQ(event.kind, EventKind::kBlockEnd);
      if (block.kind == BlockKind::kToolCall) {
        EXPECT_EQ(event.tool_call.id, block.call.id);
        EXPECT_EQ(event.tool_call.name, block.call.name);
        EXPECT_TRUE(parse_json(event.tool_call.arguments_json).ok())
            << event.tool_call.arguments_json;
        block.call = event.tool_call;
      }
      block.malformed = event.malformed;
      open = false;
    }
  }
  EXPECT_FALSE(open);
  return blocks;
}

struct Turn {
  std::vector<Block> blocks;
  ParsedOutput output;
};

struct Options {
  bool reasoning = false;
  bool complete = true;
  std::string_view tools = kTools;
};

inline OutputParser parser_for(const Tokenizer& tokenizer, const Options& options) {
  return OutputParser(tokenizer, {.starts_in_reasoning = options.reasoning,
                                  .tools_json = std::string(options.tools),
                                  .call_id_prefix = "call_t_"});
}

// By text spelling: the toy tokenizer has none of the markers.
inline Turn parse_pieces(const std::vector<std::string>& pieces, const Options& options) {
  OutputParser parser = parser_for(*tests::toy_tokenizer(), options);
  std::vector<OutputEvent> events;
  for (const std::string& piece : pieces) parser.push_text(piece, events);
  parser.finish(options.complete, events);
  return {joined(events), parser.output()};
}

}  // namespace cairn::engine

#endif  // CAIRN_TESTS_ENGINE_PARSED_OUTPUT_H_
