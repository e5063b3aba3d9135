#include "engine/prompt_turns.h"

#include <algorithm>
#include <utility>

#include "engine/tool_schema.h"

namespace cairn::engine {
namespace {

// A user message starts a turn of its own after a turn with a task: the model has answered that
// task before. Tool results always continue a user turn.
bool continues_turn(const Message& message, const std::vector<PromptTurn>& turns) {
  if (turns.empty() || turns.back().role != Role::kUser) return false;
  return message.role == Role::kTool || turns.back().task.empty();
}

void append_blocks(const Message& message, int index, std::vector<PromptTurn::Block>& blocks) {
  if (message.role == Role::kTool) {
    PromptTurn::Block result{true, message.tool_call_id, {}, index};
    for (const ContentBlock& part : message.content) result.parts.push_back(&part);
    blocks.push_back(std::move(result));
    return;
  }
  for (const ContentBlock& part : message.content) {
    const bool is_result = part.kind == ContentBlock::Kind::kToolResult;
    blocks.push_back({is_result, part.tool_call_id, {&part}, index});
  }
}

void append_to_user_turn(const Message& message, int index, std::vector<PromptTurn>& turns) {
  if (!continues_turn(message, turns)) {
    PromptTurn turn;
    turn.source = &message;
    turn.message = index;
    turns.push_back(std::move(turn));
  }
  append_blocks(message, index, turns.back().blocks);
  if (!message.task.empty()) turns.back().task = message.task;
}

// The turn that shows the tools of a message: its own if it is a system message.
PromptTurn& turn_for_tools(const Message& message, std::vector<PromptTurn>& turns) {
  if (message.role == Role::kSystem) return turns.back();
  const auto first = std::ranges::find(turns, Role::kSystem, &PromptTurn::role);
  if (first != turns.end()) return *first;
  PromptTurn inserted;
  inserted.role = Role::kSystem;
  return *turns.insert(turns.begin(), std::move(inserted));
}

Status place_tools(const Message& message, int index, std::vector<PromptTurn>& turns) {
  if (message.tools_json.empty()) return {};
  auto functions = parse_tools(message.tools_json);
  if (!functions.ok()) {
    return invalid_argument(
        "message " + std::to_string(index) + ": " + std::string(functions.status().message()),
        std::string(functions.status().hint()));
  }
  if (functions->empty()) return {};
  std::vector<JsonValue>& tools = turn_for_tools(message, turns).tools;
  std::ranges::move(*functions, std::back_inserter(tools));
  return {};
}

// Place of the call a result answers; results of unknown calls count as the first.
std::size_t call_order(std::span<const ToolCall> calls, std::string_view id) {
  const auto found = std::ranges::find(calls, id, &ToolCall::id);
  return found == calls.end() ? 0 : static_cast<std::size_t>(found - calls.begin());
}

// Results move among the places that results have; other blocks stay.
void sort_results(std::span<const ToolCall> calls, std::vector<PromptTurn::Block>& blocks) {
  std::vector<PromptTurn::Block> results;
  for (const PromptTurn::Block& block : blocks) {
    if (block.is_tool_result) results.push_back(block);
  }
  std::ranges::stable_sort(results, {}, [&](const PromptTurn::Block& block) {
    return call_order(calls, block.tool_call_id);
  });
  auto next = results.begin();
  for (PromptTurn::Block& block : blocks) {
    if (block.is_tool_result) block = std::move(*next++);
  }
}

void sort_all_results(std::vector<PromptTurn>& turns) {
  std::span<const ToolCall> calls;
  for (PromptTurn& turn : turns) {
    if (turn.role == Role::kAssistant && !turn.source->tool_calls.empty()) {
      calls = turn.source->tool_calls;
    } else if (turn.role == Role::kUser) {
      sort_results(calls, turn.blocks);
    }
  }
}

}  // namespace

Result<std::vector<PromptTurn>> prompt_turns(std::span<const Message> messages) {
  std::vector<PromptTurn> turns;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const int index = static_cast<int>(i);
    if (message.role == Role::kUser || message.role == Role::kTool) {
      append_to_user_turn(message, index, turns);
    } else {
      PromptTurn turn;
      turn.role = message.role;
      turn.source = &message;
      turn.message = index;
      turns.push_back(std::move(turn));
    }
    CAIRN_RETURN_IF_ERROR(place_tools(message, index, turns));
  }
  sort_all_results(turns);
  return turns;
}

}  // namespace cairn::engine
