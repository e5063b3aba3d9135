// Messages of a conversation, as a host appends them (spec/prompt-format.md section 2).
#ifndef CAIRN_MESSAGE_H_
#define CAIRN_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

using TokenId = std::int32_t;

enum class Role : std::int32_t {
  kSystem = 0,
  kUser = 1,
  kAssistant = 2,
  kTool = 3,
  kLatestReminder = 4,
};

// One call the model made. `name` is qualified ("ns::name") where the tool has a namespace.
struct ToolCall {
  std::string id;              // ours ("call_...") or the client's; not part of the prompt
  std::string name;
  std::string arguments_json;  // a JSON object; key order is kept
};

struct ContentBlock {
  enum class Kind : std::int32_t { kText = 0, kImage = 1, kToolResult = 2 };
  Kind kind = Kind::kText;
  std::string text;          // text, or the result's text
  std::string tool_call_id;  // tool results only
  // Text that changes between turns: the date, the state of a work tree. Session::append and
  // Session::sync move it from where it stands to a reminder before the turn it is for, and send it
  // again only when it has changed, so that it costs its own tokens and no other.
  bool is_volatile = false;
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentBlock> content;

  // system
  std::string tools_json;            // JSON array of tools in the OpenAI shape; empty = none
  std::string response_format_json;  // JSON schema; empty = none
  // assistant
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  bool leave_open = false;               // no end-of-sentence: the turn is to be continued
  std::vector<TokenId> sampled_tokens;   // exact tokens after the header; empty = not sampled here
  // tool
  std::string tool_call_id;
  // user
  std::string task;  // "", "title", "query", "authority", "domain", "read_url" or "action"

  // Id of the message in its session: the event that stands for it, a place for Session::rewind.
  // Set by Session::messages; 0 elsewhere, and ignored by append.
  std::uint64_t event = 0;

  static Message system(std::string text, std::string tools_json = {});
  static Message user(std::string text);
  static Message tool_result(std::string tool_call_id, std::string text);
};

}  // namespace cairn

#endif  // CAIRN_MESSAGE_H_
