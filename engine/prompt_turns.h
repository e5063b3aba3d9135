// The normalised form of a conversation that the template prints: tool results and user messages
// merged into turns, results in call order, tools where they belong (spec/prompt-format.md
// section 2.1).
#ifndef CAIRN_ENGINE_PROMPT_TURNS_H_
#define CAIRN_ENGINE_PROMPT_TURNS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/message.h"
#include "cairn/status.h"
#include "engine/python_json.h"

namespace cairn::engine {

struct PromptTurn {
  // What user turns consist of. Blocks of a turn are separated by blank lines, and so are the parts
  // of a block.
  struct Block {
    bool is_tool_result = false;
    std::string_view tool_call_id;           // tool results only
    std::vector<const ContentBlock*> parts;  // texts and images; borrowed, never null
    int message = -1;
  };

  Role role = Role::kUser;          // never kTool
  const Message* source = nullptr;  // null for an inserted system message; first of a user turn
  int message = -1;                 // index of `source`, -1 = none
  std::vector<Block> blocks;        // user turns only
  std::vector<JsonValue> tools;     // system turns only: functions to print (tool_schema.h)
  std::string task;                 // user turns only
};

// The turns borrow from `messages`. kInvalidArgument names the message.
Result<std::vector<PromptTurn>> prompt_turns(std::span<const Message> messages);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_PROMPT_TURNS_H_
