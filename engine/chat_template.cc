// Prints turns (prompt_turns.h) as segments. Fixed text of the format is split at the markers it
// mentions, because the reference encodes those as added tokens; everything that comes from a
// message is a text segment and can never become a marker.
#include "engine/chat_template.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "engine/prompt_markers.h"
#include "engine/prompt_turns.h"
#include "engine/python_json.h"
#include "engine/tool_schema.h"

namespace cairn::engine {
namespace {

using SegmentKind = PromptSegment::Kind;

constexpr int kMinEffort = 1;
constexpr int kMaxEffort = 100;

// spec/prompt-format.md section 2.3; the schemas stand between the two parts.
constexpr std::string_view kToolsIntroduction =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsConclusion =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
constexpr std::string_view kBlankLine = "\n\n";

// A task other than `action` has a marker of its own name.
constexpr std::string_view kActionTask = "action";
constexpr std::array<std::string_view, 6> kTasks = {"title",  "query",    "authority",
                                                    "domain", "read_url", kActionTask};

std::string task_marker(std::string_view task) { return "<｜" + std::string(task) + "｜>"; }

class SegmentWriter {
 public:
  // What follows belongs to this message; -1 = none.
  void begin_message(int index) { message_ = index; }

  void marker(std::string_view spelling) { add(SegmentKind::kMarker, spelling); }
  void text(std::string_view text) {
    if (!text.empty()) add(SegmentKind::kText, text);
  }
  void sampled(std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    segments_.push_back({SegmentKind::kSampled, {}, {tokens.begin(), tokens.end()}, message_});
  }
  // Text of the format itself: the markers it mentions become markers.
  void fixed(std::string_view text) {
    while (!text.empty()) {
      std::size_t begin = text.size();
      std::string_view found;
      for (const std::string_view spelling : {kDsml, kThinkBegin, kThinkEnd}) {
        const std::size_t place = text.find(spelling);
        if (place < begin) {
          begin = place;
          found = spelling;
        }
      }
      this->text(text.substr(0, begin));
      if (!found.empty()) marker(found);
      text.remove_prefix(begin + found.size());
    }
  }

  std::vector<PromptSegment> take() { return std::move(segments_); }

 private:
  void add(SegmentKind kind, std::string_view text) {
    const bool extends = kind == SegmentKind::kText && !segments_.empty() &&
                         segments_.back().kind == kind && segments_.back().message == message_;
    if (extends) {
      segments_.back().text += text;
    } else {
      segments_.push_back({kind, std::string(text), {}, message_});
    }
  }

  std::vector<PromptSegment> segments_;
  int message_ = -1;
};

// ---- tool calls of the history (section 2.4) ----

// The arguments as an object. Other values become the one argument `arguments`.
JsonValue arguments_object(const ToolCall& call) {
  auto arguments = parse_json(call.arguments_json);
  if (arguments.ok() && arguments->is(JsonValue::Kind::kObject)) return std::move(*arguments);
  JsonValue wrapped = JsonValue::make_object();
  if (!call.arguments_json.empty()) {
    wrapped.add("arguments", arguments.ok() ? std::move(*arguments)
                                            : JsonValue::make_string(call.arguments_json));
  }
  return wrapped;
}

Status check_representable(std::string_view what, std::string_view name) {
  if (name.find_first_of("\">") == std::string_view::npos) return {};
  return invalid_argument(std::string(what) + " '" + std::string(name) + "' contains '\"' or '>'",
                          "the prompt format cannot represent these");
}

Status check_calls(std::span<const ToolCall> calls) {
  for (const ToolCall& call : calls) {
    if (call.name.empty()) return invalid_argument("a tool call has no name");
    CAIRN_RETURN_IF_ERROR(check_representable("name of a tool call", call.name));
    for (const JsonMember& argument : arguments_object(call).members) {
      CAIRN_RETURN_IF_ERROR(check_representable("argument of a tool call", argument.key));
    }
  }
  return {};
}

void write_call(const ToolCall& call, SegmentWriter& out) {
  out.fixed("<｜DSML｜ invoke name=\"");
  out.text(call.name);
  out.text("\">\n");
  const JsonValue arguments = arguments_object(call);
  for (std::size_t i = 0; i < arguments.members.size(); ++i) {
    const auto& [key, value] = arguments.members[i];
    const bool is_string = value.is(JsonValue::Kind::kString);
    if (i > 0) out.text("\n");
    out.fixed("<｜DSML｜ parameter name=\"");
    out.text(key);
    out.text(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
    out.text(is_string ? value.text : to_python_json(value));
    out.fixed("</｜DSML｜ parameter>");
  }
  out.fixed("\n</｜DSML｜ invoke>\n");
}

void write_calls(std::span<const ToolCall> calls, SegmentWriter& out) {
  if (calls.empty()) return;
  out.fixed("\n\n<｜DSML｜ calls>\n");
  for (const ToolCall& call : calls) write_call(call, out);
  out.fixed("</｜DSML｜ calls>");
}

// ---- messages by role (section 2.2) ----

void write_part(const ContentBlock& part, SegmentWriter& out) {
  if (part.kind == ContentBlock::Kind::kImage) {
    out.marker(kImageMarker);
  } else {
    out.text(part.text);
  }
}

void write_content(std::span<const ContentBlock> content, SegmentWriter& out) {
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (i > 0) out.text(kBlankLine);
    write_part(content[i], out);
  }
}

void write_tools(std::span<const JsonValue> functions, SegmentWriter& out) {
  out.fixed(kToolsIntroduction);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (i > 0) out.text("\n");
    out.text(to_python_json(functions[i]));
  }
  out.fixed(kToolsConclusion);
}

void write_system(const PromptTurn& turn, SegmentWriter& out) {
  if (turn.source != nullptr) write_content(turn.source->content, out);
  if (!turn.tools.empty()) {
    out.text(kBlankLine);
    write_tools(turn.tools, out);
  }
  if (turn.source != nullptr && !turn.source->response_format_json.empty()) {
    out.text(kBlankLine);
    out.text(kResponseFormat);
    const auto schema = parse_json(turn.source->response_format_json);
    if (schema.ok()) out.text(to_python_json(*schema));  // checked before
  }
}

void write_user(const PromptTurn& turn, SegmentWriter& out) {
  out.marker(kUserMarker);
  for (std::size_t i = 0; i < turn.blocks.size(); ++i) {
    const PromptTurn::Block& block = turn.blocks[i];
    out.begin_message(block.message);
    if (i > 0) out.text(kBlankLine);
    if (block.is_tool_result) out.text("<tool_result>");
    for (std::size_t p = 0; p < block.parts.size(); ++p) {
      if (p > 0) out.text(kBlankLine);
      write_part(*block.parts[p], out);
    }
    if (block.is_tool_result) out.text("</tool_result>");
  }
}

struct AssistantContext {
  bool thinking = false;
  bool shows_reasoning = false;
  TokenId think_end = -1, eos = -1;
};

bool has_answer(const Message& message) {
  return !message.tool_calls.empty() ||
         std::ranges::any_of(message.content,
                             [](const ContentBlock& part) { return !part.text.empty(); });
}

// The sampled tokens that stand in the prompt, or nothing if they do not show where the reasoning
// ends (a toy tokenizer, or a mode that differs from the one they were sampled in).
std::optional<std::span<const TokenId>> sampled_part(const Message& message,
                                                     const AssistantContext& context) {
  const std::span<const TokenId> all = message.sampled_tokens;
  if (all.empty()) return std::nullopt;
  const bool knows_end = context.think_end >= 0;
  const auto end = knows_end ? std::ranges::find(all, context.think_end) : all.end();
  const bool has_end = end != all.end();

  if (context.shows_reasoning) {
    const bool sampled_thinking =
        !knows_end || has_end || !message.reasoning.empty() || !has_answer(message);
    return sampled_thinking ? std::optional(all) : std::nullopt;
  }
  if (!context.thinking && message.reasoning.empty()) return all;
  if (has_end) return std::span<const TokenId>(end + 1, all.end());
  const bool sampled_chat = knows_end && message.reasoning.empty() && has_answer(message);
  return sampled_chat ? std::optional(all) : std::nullopt;
}

void write_sampled(std::span<const TokenId> tokens, bool leave_open, TokenId eos,
                   SegmentWriter& out) {
  const bool ended = !tokens.empty() && tokens.back() == eos;
  if (ended && leave_open) tokens = tokens.first(tokens.size() - 1);
  out.sampled(tokens);
  if (!ended && !leave_open) out.marker(kEndOfSentence);
}

Status write_assistant(const Message& message, const AssistantContext& context,
                       SegmentWriter& out) {
  if (const auto sampled = sampled_part(message, context)) {
    write_sampled(*sampled, message.leave_open, context.eos, out);
    return {};
  }
  CAIRN_RETURN_IF_ERROR(check_calls(message.tool_calls));
  if (context.shows_reasoning) {
    out.text(message.reasoning);
    out.marker(kThinkEnd);
  }
  write_content(message.content, out);
  write_calls(message.tool_calls, out);
  if (!message.leave_open) out.marker(kEndOfSentence);
  return {};
}

// ---- the conversation ----

class PromptRenderer {
 public:
  PromptRenderer(std::span<const PromptTurn> turns, const PromptOptions& options, TokenId think_end,
                 TokenId eos)
      : turns_(turns), options_(options), think_end_(think_end), eos_(eos) {
    const bool has_tools =
        std::ranges::any_of(turns_, [](const PromptTurn& turn) { return !turn.tools.empty(); });
    drop_thinking_ = options_.drop_thinking && !has_tools;
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      if (is_user_turn(i)) last_user_turn_ = static_cast<std::ptrdiff_t>(i);
    }
  }

  Result<std::vector<PromptSegment>> render() {
    if (options_.add_bos) out_.marker(kBeginOfSentence);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      out_.begin_message(turns_[i].message);
      if (i == 0) write_start();
      CAIRN_RETURN_IF_ERROR(write_turn(i));
      write_header(i);
    }
    return out_.take();
  }

 private:
  // A system message in mid-conversation asks for an answer as a user message does.
  bool is_user_turn(std::size_t i) const {
    return turns_[i].role == Role::kUser || (turns_[i].role == Role::kSystem && i > 0);
  }
  // Reasoning counts from the last user turn on; before it only where nothing is dropped.
  bool keeps_reasoning(std::ptrdiff_t i) const {
    return options_.thinking && (!drop_thinking_ || i >= last_user_turn_);
  }

  void write_start() {
    if (options_.thinking || turns_[0].role == Role::kSystem) out_.marker(kSystemMarker);
    if (!options_.thinking) return;
    out_.text("Reasoning Effort: " + std::to_string(options_.effort) +
              " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
  }

  Status write_turn(std::size_t i) {
    const PromptTurn& turn = turns_[i];
    switch (turn.role) {
      case Role::kSystem:
        if (i > 0) out_.marker(kSystemMarker);
        write_system(turn, out_);
        return {};
      case Role::kUser:
      case Role::kTool:
        write_user(turn, out_);
        return {};
      case Role::kLatestReminder:
        out_.marker(kLatestReminderMarker);
        write_content(turn.source->content, out_);
        return {};
      case Role::kAssistant: {
        Status status = write_assistant(*turn.source, assistant_context(i), out_);
        if (status.ok()) return status;
        return invalid_argument(
            "message " + std::to_string(turn.message) + ": " + std::string(status.message()),
            std::string(status.hint()));
      }
    }
    return internal_error("unknown role");
  }

  AssistantContext assistant_context(std::size_t i) const {
    const bool after_task = i > 0 && !turns_[i - 1].task.empty();
    const bool shows_reasoning = !after_task && keeps_reasoning(static_cast<std::ptrdiff_t>(i));
    return {options_.thinking, shows_reasoning, think_end_, eos_};
  }

  // What opens the assistant message after turn i (section 2.2, step 3).
  void write_header(std::size_t i) {
    const bool is_last = i + 1 == turns_.size();
    if (is_last && !options_.open_answer) return;
    if (!is_last && turns_[i + 1].role != Role::kAssistant &&
        turns_[i + 1].role != Role::kLatestReminder) {
      return;
    }
    const std::string& task = turns_[i].task;
    if (task.empty()) {
      if (!is_user_turn(i)) return;
      const bool thinks = keeps_reasoning(static_cast<std::ptrdiff_t>(i));
      out_.marker(kAssistantMarker);
      out_.marker(thinks ? kThinkBegin : kThinkEnd);
    } else if (task == kActionTask) {
      out_.marker(kAssistantMarker);
      out_.marker(options_.thinking ? kThinkBegin : kThinkEnd);
      out_.marker(kActionMarker);
    } else {
      out_.marker(task_marker(task));
    }
  }

  std::span<const PromptTurn> turns_;
  const PromptOptions& options_;
  TokenId think_end_, eos_;
  bool drop_thinking_ = true;
  std::ptrdiff_t last_user_turn_ = -1;
  SegmentWriter out_;
};

Status check_fields_of_role(const Message& message) {
  if (!message.task.empty()) {
    if (message.role != Role::kUser) return invalid_argument("only a user message has a task");
    if (std::ranges::find(kTasks, message.task) == kTasks.end()) {
      return invalid_argument("unknown task '" + message.task + "'",
                              "tasks are title, query, authority, domain, read_url and action");
    }
  }
  if (!message.tool_calls.empty() && message.role != Role::kAssistant) {
    return invalid_argument("only an assistant message has tool calls");
  }
  if (!message.response_format_json.empty() && message.role != Role::kSystem) {
    return invalid_argument("only a system message has a response format");
  }
  for (const ContentBlock& part : message.content) {
    if (part.kind == ContentBlock::Kind::kToolResult && message.role != Role::kUser) {
      return invalid_argument("only a user message has tool_result blocks",
                              "a message of role tool is a result itself");
    }
  }
  return {};
}

Status check_response_format(const Message& message) {
  if (message.response_format_json.empty()) return {};
  const auto schema = parse_json(message.response_format_json);
  if (schema.ok()) return {};
  return invalid_argument("response format: " + std::string(schema.status().message()));
}

}  // namespace

Status check_message(const Message& message) {
  CAIRN_RETURN_IF_ERROR(check_fields_of_role(message));
  CAIRN_RETURN_IF_ERROR(check_response_format(message));
  if (!message.tools_json.empty()) {
    const auto functions = parse_tools(message.tools_json);
    if (!functions.ok()) return functions.status();
  }
  return check_calls(message.tool_calls);
}

Result<std::vector<PromptSegment>> render_prompt(std::span<const Message> messages,
                                                 const PromptOptions& options, TokenId think_end,
                                                 TokenId eos) {
  if (options.thinking && (options.effort < kMinEffort || options.effort > kMaxEffort)) {
    return invalid_argument("reasoning effort " + std::to_string(options.effort) +
                            " is not in 1..100");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Status status = check_fields_of_role(messages[i]);
    if (status.ok()) status = check_response_format(messages[i]);
    if (!status.ok()) {
      return invalid_argument("message " + std::to_string(i) + ": " + std::string(status.message()),
                              std::string(status.hint()));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<PromptTurn> turns, prompt_turns(messages));
  return PromptRenderer(turns, options, think_end, eos).render();
}

std::string prompt_text(std::span<const PromptSegment> segments, const Tokenizer& tokenizer) {
  std::string text;
  for (const PromptSegment& segment : segments) {
    text += segment.text;
    for (const TokenId token : segment.tokens) text += tokenizer.bytes(token);
  }
  return text;
}

std::vector<TokenId> encode_prompt(std::span<const PromptSegment> segments,
                                   const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  std::string text;
  const auto flush_text = [&] {
    tokenizer.encode_text(text, tokens);
    text.clear();
  };
  for (const PromptSegment& segment : segments) {
    const auto marker =
        segment.kind == SegmentKind::kMarker ? tokenizer.added_token(segment.text) : std::nullopt;
    if (marker) {
      flush_text();
      tokens.push_back(*marker);
    } else if (segment.kind == SegmentKind::kSampled) {
      flush_text();
      tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
    } else {
      text += segment.text;
    }
  }
  flush_text();
  return tokens;
}

Result<int> parse_effort(std::string_view text) {
  if (text == "low") return 50;
  if (text == "high") return 75;
  if (text == "max") return 100;
  int effort = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), effort);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && effort >= kMinEffort && effort <= kMaxEffort) return effort;
  return invalid_argument("reasoning effort '" + std::string(text) + "'",
                          "give low, high, max or an integer from 1 to 100");
}

}  // namespace cairn::engine
