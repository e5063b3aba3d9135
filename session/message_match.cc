// The state that the model sampled is the truth; what a client sends only selects it. So an answer
// is found by what clients keep (calls, visible text), never by what they drop, move or spell anew
// (reasoning, null content, JSON), and the stored spelling of tools stays while its meaning does.
#include "session/message_match.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "engine/prompt_markers.h"
#include "engine/tool_schema.h"
#include "session/canonical_json.h"

namespace cairn::session {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr char kSeparator = '\x1f';  // between the parts of a key

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// After the reasoning that the text begins with; 0 = it begins with none.
std::size_t end_of_reasoning(std::string_view text) {
  if (text.starts_with(engine::kThinkEnd)) return engine::kThinkEnd.size();
  if (!text.starts_with(engine::kThinkBegin)) return 0;
  const std::size_t end = text.find(engine::kThinkEnd);
  return end == std::string_view::npos ? 0 : end + engine::kThinkEnd.size();
}

// What a turn that is interrupted has not delivered, though its message has it: the beginning of a
// character or of markup.
bool was_held_back(std::string_view end) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  constexpr std::size_t kMarkupBytes = 32;
  while (!end.empty() && (end.starts_with(kReplacement) || kSpace.find(end[0]) != kSpace.npos)) {
    end.remove_prefix(end.starts_with(kReplacement) ? kReplacement.size() : 1);
  }
  return end.empty() || (end[0] == '<' && end.size() <= kMarkupBytes);
}

bool same_answer_text(std::string_view given, std::string_view stored) {
  if (given.empty()) return stored.empty();
  return stored.starts_with(given) && was_held_back(stored.substr(given.size()));
}

// Names and arguments of the calls, in their order.
std::string calls_key(const std::vector<ToolCall>& calls) {
  std::string key;
  for (const ToolCall& call : calls) {
    key += call.name + kSeparator + canonical_json(call.arguments_json) + kSeparator;
  }
  return key;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (kSpace.find(c) == std::string_view::npos) out += c;
  }
  return out;
}

bool same_ids(const Message& a, const Message& b) {
  return std::ranges::equal(a.tool_calls, b.tool_calls, {}, &ToolCall::id, &ToolCall::id);
}

// Of each tool, by its name; empty where the list cannot be read.
std::map<std::string, std::string> tools_by_name(const std::string& tools_json,
                                                 std::vector<std::string>& names) {
  std::map<std::string, std::string> tools;
  if (tools_json.empty()) return tools;
  const auto functions = engine::parse_tools(tools_json);
  if (!functions.ok()) return tools;
  for (const engine::JsonValue& function : *functions) {
    const engine::JsonValue* name = function.find("name");
    if (name == nullptr) continue;
    names.push_back(name->text);
    tools[name->text] = canonical_json(function);
  }
  return tools;
}

bool same_format(const Message& a, const Message& b) {
  return a.response_format_json == b.response_format_json ||
         canonical_json(a.response_format_json) == canonical_json(b.response_format_json);
}

}  // namespace

std::string shown_text(const Message& message) {
  std::string text;
  for (std::size_t i = 0; i < message.content.size(); ++i) {
    if (i > 0) text += "\n\n";
    text += message.content[i].text;
  }
  return text;
}

std::string visible_text(const Message& answer) {
  const std::string text = shown_text(answer);
  const std::string_view whole = trimmed(text);
  return std::string(trimmed(whole.substr(end_of_reasoning(whole))));
}

void take_reasoning_out(Message& answer) {
  const std::string text = shown_text(answer);
  const std::string_view whole = trimmed(text);
  const std::size_t end = end_of_reasoning(whole);
  if (end == 0) return;
  std::string_view reasoning = whole.substr(0, end - engine::kThinkEnd.size());
  if (reasoning.starts_with(engine::kThinkBegin)) {
    reasoning.remove_prefix(engine::kThinkBegin.size());
  }
  if (answer.reasoning.empty()) answer.reasoning = reasoning;
  const std::string_view rest = trimmed(whole.substr(end));
  answer.content.clear();
  if (!rest.empty()) answer.content.push_back({ContentBlock::Kind::kText, std::string(rest), {}});
}

std::string message_key(const Message& message) {
  std::string key(1, static_cast<char>('0' + static_cast<int>(message.role)));
  if (message.role == Role::kAssistant) {
    return key + visible_text(message) + kSeparator + calls_key(message.tool_calls);
  }
  for (const ContentBlock& block : message.content) {
    key += kSeparator + std::to_string(static_cast<int>(block.kind)) + block.text;
  }
  std::vector<std::string> names;
  for (const auto& [name, tool] : tools_by_name(message.tools_json, names))
    key += kSeparator + tool;
  return key + kSeparator + canonical_json(message.response_format_json) + kSeparator +
         message.task;
}

SyncMatch match_answer(const Message& given, const Message& stored) {
  if (given.role != Role::kAssistant || stored.role != Role::kAssistant) return SyncMatch::kNone;
  if (given.event != 0 && given.event == stored.event) return SyncMatch::kEvent;
  if (given.tool_calls.size() != stored.tool_calls.size()) return SyncMatch::kNone;
  if (calls_key(given.tool_calls) != calls_key(stored.tool_calls)) return SyncMatch::kNone;
  const std::string given_text = visible_text(given), stored_text = visible_text(stored);
  if (given.tool_calls.empty()) {
    return same_answer_text(given_text, stored_text) ? SyncMatch::kText : SyncMatch::kNone;
  }
  // Many clients drop the text of a message that makes calls.
  if (!given_text.empty() && !same_answer_text(given_text, stored_text)) return SyncMatch::kNone;
  return same_ids(given, stored) ? SyncMatch::kCallIds : SyncMatch::kArguments;
}

bool is_rewritten(const Message& given, const Message& stored) {
  if (match_answer(given, stored) != SyncMatch::kNone) return true;
  if (!given.tool_calls.empty() && calls_key(given.tool_calls) == calls_key(stored.tool_calls)) {
    return true;
  }
  return given.tool_calls.size() == stored.tool_calls.size() &&
         squeezed(visible_text(given)) == squeezed(visible_text(stored));
}

ToolDifference compare_tools(const std::string& stored_json, const std::string& given_json) {
  if (stored_json == given_json) return {};
  std::vector<std::string> stored_names, given_names;
  const auto stored = tools_by_name(stored_json, stored_names);
  const auto given = tools_by_name(given_json, given_names);
  for (const std::string& name : given_names) {
    const auto found = stored.find(name);
    if (found == stored.end()) return {name, "added"};
    if (found->second != given.at(name)) return {name, "changed"};
  }
  for (const std::string& name : stored_names) {
    if (!given.contains(name)) return {name, "removed"};
  }
  return {};
}

bool says_the_same(const Message& given, const Message& stored) {
  if (given.role != stored.role || given.task != stored.task) return false;
  if (shown_text(given) != shown_text(stored)) return false;
  return compare_tools(stored.tools_json, given.tools_json).tool.empty() &&
         same_format(given, stored);
}

}  // namespace cairn::session
