// From sampled tokens to blocks: reasoning, text, tool calls (spec/prompt-format.md section 4).
// A byte-level state machine that holds back only what may still become a marker, so the same
// output gives the same events however it is split. Not thread-safe; copyable (its state is small).
#ifndef CAIRN_ENGINE_OUTPUT_PARSER_H_
#define CAIRN_ENGINE_OUTPUT_PARSER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/session.h"
#include "engine/output_markup.h"
#include "engine/stop_strings.h"
#include "engine/tokenizer.h"
#include "engine/tool_schema.h"

namespace cairn::engine {

// Every begin has its end. The bytes of a block add up to its text. The bytes of a tool call add up
// to its arguments_json, with one exception: where the model repeated a parameter, the bytes have
// the key twice and arguments_json has it once, with the last value.
struct OutputEvent {
  EventKind kind = EventKind::kBlockBytes;  // kBlockBegin, kBlockBytes or kBlockEnd
  int block = 0;                            // 0, 1, 2, ... within the turn
  BlockKind block_kind = BlockKind::kText;
  std::string bytes;   // whole UTF-8 characters; JSON text for arguments
  ToolCall tool_call;  // begin: id and name; end: all of it
  // At the end of a block. Tool call: repaired or cut, not as written. Text: holds markup that
  // could not be read, or markup was cut off after it.
  bool malformed = false;
};

// What the turn amounts to so far; the assistant message of the log.
struct ParsedOutput {
  std::string reasoning, text;
  std::vector<ToolCall> tool_calls;  // finished, or cut with all that the tool requires
  int reasoning_tokens = 0;          // tokens sampled while reasoning, its end marker included
};

struct OutputParserOptions {
  bool starts_in_reasoning = false;
  std::string tools_json = {};      // declared tools (types of parameters), may be empty
  std::string call_id_prefix = {};  // ids are prefix + index, so that a resumed turn repeats them
  std::vector<std::string> stop = {};  // texts that end the answer (stop_strings.h)
  std::int32_t max_calls = 0;          // tool calls; 0 = no limit
  std::size_t n_begun = 0;             // tokens pushed first, to which neither applies
};

// Why the parser takes no more of the output.
enum class OutputStop { kNone, kStopString, kCallLimit };

class OutputParser {
 public:
  // Borrows the tokenizer, which must outlive the parser and its copies. Malformed `tools_json`
  // counts as no tools.
  OutputParser(const Tokenizer& tokenizer, const OutputParserOptions& options);

  // Feeds one sampled token; appends what it settles. End-of-sentence and other hidden markers
  // (BOS, PAD, role markers) produce no bytes.
  void push(TokenId token, std::vector<OutputEvent>& out);
  // The same for raw bytes of ordinary text.
  void push_text(std::string_view bytes, std::vector<OutputEvent>& out);
  // The turn is over (`complete`: by end-of-sentence): flushes what was held back, closes blocks.
  // An unfinished call is dropped from the output unless all parameters its tool requires are
  // there; its block ends as malformed. What is pushed later is ignored.
  void finish(bool complete, std::vector<OutputEvent>& out);

  const ParsedOutput& output() const { return output_; }
  // What was settled so far is reasoning, and its end has not come.
  bool in_reasoning() const { return in_reasoning_; }
  // Once it is not kNone the turn is over: all blocks are closed, what is pushed later is ignored.
  OutputStop stopped() const { return stopped_; }
  const std::string& stop_string() const { return stop_strings_.found(); }  // that was said

 private:
  // Where the next character stands: outside of calls (reasoning, text, between the invokes of a
  // block), inside an invoke but outside its parameters, inside a parameter's value.
  enum class State { kOutside, kInvoke, kParameter, kFinished };

  // What a parameter's value is written as.
  enum class ValueKind {
    kString,              // raw text
    kJson,                // JSON, or else a string by mistake
    kJsonIfReadable,      // the model did not say; the schema does not want a string
    kJsonUnlessBareWord,  // the model did not say and there is no schema
  };

  struct Vocabulary {
    TokenId think_begin = -1, think_end = -1, dsml = -1;
    std::vector<TokenId> hidden;
    MarkupSpelling spelling;
  };

  struct OpenCall {
    ToolCall call;                        // arguments_json: what was emitted
    const ToolSignature* tool = nullptr;  // into tools_; null = not declared
    std::vector<std::string> keys;        // of the parameters so far
    std::string stray;                    // text between the tags: arguments as JSON, or a mistake
    bool malformed = false;
    bool repeats_key = false;
    bool is_whole = false;  // arguments_json is a whole object, its end included

    std::string value;  // of the parameter being read, unless it streams
    ValueKind value_kind = ValueKind::kString;
    bool streams = false;     // value is emitted as it arrives
    bool may_unwrap = false;  // value is held until it is known whether it is all the arguments
    bool is_held = false;
  };

  // Each step looks at the start of pending_ and consumes something; false: nothing to do before
  // more arrives.
  void drain();
  bool step();
  bool step_text();
  bool step_between_tags();
  bool step_invoke();
  bool step_parameter();

  // What markup means in each state; false: it is text there. Consumes it with the `n_before`
  // characters of white space before it.
  bool apply_outside(const Markup& markup, std::size_t n_before);
  bool apply_think_end(const Markup& markup, std::size_t n_before);
  bool apply_calls_end(const Markup& markup, std::size_t n_before);
  bool apply_in_invoke(const Markup& markup);
  bool ends_value(const Markup& markup) const;
  bool opens_call(const Markup& markup) const;

  void open_calls(std::size_t n_bytes);
  void leave_tags();
  void begin_call(const std::string& name);
  static ValueKind unstated_kind(const ToolSignature::Parameter* known);
  void begin_parameter(const Markup& markup);
  void append_value(std::string_view raw);
  void end_value();
  void settle_held_value(bool is_alone);
  void emit_all_arguments(const JsonValue& arguments, std::string_view json);
  void emit_key_and_value(const std::string& key, std::string_view value_json);
  std::string value_json();
  void settle_stray_text();
  void end_call(bool keep);
  bool has_required() const;

  void finish_outside(bool complete);
  void finish_call(bool complete);

  MarkupMatch read_at(std::size_t position, Markup& out) const;
  void append_added_token(TokenId token);
  const ToolSignature* declared(std::string_view name) const;
  void consume(std::size_t n_bytes) { pending_.erase(0, n_bytes); }
  void emit_text(std::string_view raw);
  void emit_settled_text(BlockKind kind, const std::string& text);
  void emit_arguments(std::string_view json);
  // An event of the newest block.
  OutputEvent& add_event(EventKind kind, BlockKind block_kind);
  void emit_bytes(BlockKind kind, std::string_view bytes);
  void end_block();
  void deliver(std::vector<OutputEvent>& out);

  const Tokenizer* tokenizer_;
  Vocabulary vocabulary_;
  // Shared by copies of the parser: declared tools can be large and never change.
  std::shared_ptr<const std::vector<ToolSignature>> tools_;
  std::string call_id_prefix_;

  State state_ = State::kOutside;
  Utf8Assembler utf8_;
  std::string pending_;  // text and marker bytes (output_markup.h) that are not settled
  std::vector<OutputEvent> events_;
  ParsedOutput output_;

  bool in_reasoning_ = false;
  bool swallowed_think_end_ = false;
  int n_blocks_ = 0;
  bool block_is_open_ = false;
  BlockKind block_kind_ = BlockKind::kText;
  bool text_malformed_ = false;  // the open text block's verdict

  StopStrings stop_strings_;
  std::int32_t max_calls_ = 0;
  std::size_t n_begun_ = 0;  // that are still to come
  int n_begun_calls_ = 0;
  OutputStop stopped_ = OutputStop::kNone;

  bool between_tags_ = false;     // after a tag: white space is no text unless text follows
  bool calls_are_open_ = false;   // inside a block of calls
  bool after_bare_call_ = false;  // after a call that no block surrounds
  int n_calls_ = 0;               // begun in this turn
  int n_calls_of_block_ = 0;
  std::string unparsed_;  // the block's opening as written, until a call begins in it
  OpenCall call_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_OUTPUT_PARSER_H_
