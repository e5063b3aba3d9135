// From sampled tokens to blocks: reasoning, text, tool calls (spec/prompt-format.md section 4).
// A byte-level state machine that holds back only what may still become a marker, so the same
// output gives the same events however it is split. Not thread-safe; copyable (its state is small).
#ifndef CAIRN_ENGINE_OUTPUT_PARSER_H_
#define CAIRN_ENGINE_OUTPUT_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/session.h"
#include "engine/tokenizer.h"

namespace cairn::engine {

struct OutputEvent {
  EventKind kind = EventKind::kBlockBytes;  // kBlockBegin, kBlockBytes or kBlockEnd
  int block = 0;                            // 0, 1, 2, ... within the turn
  BlockKind block_kind = BlockKind::kText;
  std::string bytes;                        // whole UTF-8 characters; JSON text for arguments
  ToolCall tool_call;                       // begin: id and name; end: all of it
  bool malformed = false;                   // end of a tool call: repaired or cut, not as written
};

// What the turn amounts to so far; the assistant message of the log.
struct ParsedOutput {
  std::string reasoning, text;
  std::vector<ToolCall> tool_calls;  // finished and not cut off
  int reasoning_tokens = 0;
};

struct OutputParserOptions {
  bool starts_in_reasoning = false;
  std::string tools_json;      // declared tools (types of parameters), may be empty
  std::string call_id_prefix;  // ids are prefix + index, so that a resumed turn repeats them
};

class OutputParser {
 public:
  OutputParser(const Tokenizer& tokenizer, const OutputParserOptions& options);

  // Feeds one sampled token; appends what it settles. End-of-sentence and other hidden markers
  // (BOS, PAD, role markers) produce no bytes.
  void push(TokenId token, std::vector<OutputEvent>& out);
  // The same for raw bytes of ordinary text.
  void push_text(std::string_view bytes, std::vector<OutputEvent>& out);
  // The turn is over (`complete`: by end-of-sentence): flushes what was held back, closes blocks.
  void finish(bool complete, std::vector<OutputEvent>& out);

  const ParsedOutput& output() const { return output_; }

 private:
  // (implementation detail, owned by output_parser.cc)
  ParsedOutput output_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_OUTPUT_PARSER_H_
