#include "session/conversation.h"

#include <algorithm>
#include <string>
#include <utility>

namespace cairn::session {
namespace {

// The ids of the calls whose results the message has.
std::vector<std::string> answered_by(const Message& message) {
  std::vector<std::string> ids;
  if (message.role == Role::kTool) ids.push_back(message.tool_call_id);
  for (const ContentBlock& block : message.content) {
    if (block.kind == ContentBlock::Kind::kToolResult) ids.push_back(block.tool_call_id);
  }
  return ids;
}

// False if there is none with this id.
bool take(std::vector<ToolCall>& pending, const std::string& id) {
  const auto call = std::ranges::find(pending, id, &ToolCall::id);
  if (call == pending.end()) return false;
  pending.erase(call);
  return true;
}

Status not_pending(const std::string& id, const std::vector<ToolCall>& pending) {
  std::string hint = "no call is pending: append results after the message that made the calls";
  for (const ToolCall& call : pending) {
    hint = (&call == pending.data() ? "pending calls: " : hint + ", ") + call.id + " (" +
           call.name + ")";
  }
  return invalid_argument("tool result: no pending call has the id '" + id + "'", hint);
}

}  // namespace

// A turn that goes on with the last message replaces it by what both said.
void Conversation::end_turn(const TurnEnded& ended) {
  Message message = ended.message;
  if (!open_turn) {
    messages.push_back(std::move(message));
    return;
  }
  // The log has the tokens once, in its TokensGenerated events.
  OpenTurn turn = std::move(*open_turn);
  open_turn.reset();
  message.sampled_tokens = std::move(turn.tokens);
  if (turn.started.continues && !messages.empty()) {
    std::vector<TokenId>& tokens = message.sampled_tokens;
    tokens.insert(tokens.begin(), turn.started.begun.begin(), turn.started.begun.end());
    messages.pop_back();
  }
  if (!message.sampled_tokens.empty()) {
    last_turn = LastTurn{std::move(turn.started), messages.size(), message.sampled_tokens,
                         turn.event, ended.end_reason};
  }
  messages.push_back(std::move(message));
}

void Conversation::apply(const EventBody& body, std::uint64_t sequence) {
  if (const auto* appended = std::get_if<MessageAppended>(&body)) {
    messages.push_back(appended->message);
    messages.back().event = sequence;
  } else if (const auto* started = std::get_if<TurnStarted>(&body)) {
    open_turn = OpenTurn{*started, {}, sequence};
    moves.clear();
  } else if (const auto* generated = std::get_if<TokensGenerated>(&body)) {
    if (!open_turn) return;
    open_turn->tokens.insert(open_turn->tokens.end(), generated->tokens.begin(),
                             generated->tokens.end());
  } else if (const auto* ended = std::get_if<TurnEnded>(&body)) {
    end_turn(*ended);
    messages.back().event = sequence;
  } else if (const auto* moved = std::get_if<HeadMoved>(&body)) {
    moves.push_back(*moved);
  } else if (std::holds_alternative<ModelChanged>(body)) {
    // Of another vocabulary, perhaps: what was said is read as text from here on.
    for (Message& message : messages) message.sampled_tokens.clear();
    last_turn.reset();
    moves.clear();
  }
}

std::vector<ToolCall> pending_calls(const std::vector<Message>& messages) {
  const auto last = std::find_if(messages.rbegin(), messages.rend(), [](const Message& message) {
    return message.role == Role::kAssistant;
  });
  if (last == messages.rend()) return {};
  std::vector<ToolCall> pending = last->tool_calls;
  for (auto message = last.base(); message != messages.end(); ++message) {
    for (const std::string& id : answered_by(*message)) take(pending, id);
  }
  return pending;
}

Status check_no_image(const Message& message) {
  for (std::size_t i = 0; i < message.content.size(); ++i) {
    if (message.content[i].kind != ContentBlock::Kind::kImage) continue;
    return {StatusCode::kUnsupported,
            "content[" + std::to_string(i) + "] is an image; this library reads text only",
            "leave the image out or describe it in words"};
  }
  return {};
}

bool may_answer_calls(const Message& message) { return !answered_by(message).empty(); }

Status check_results(const Message& message, const std::vector<Message>& messages) {
  const std::vector<std::string> ids = answered_by(message);
  if (ids.empty()) return {};
  std::vector<ToolCall> pending = pending_calls(messages);
  for (const std::string& id : ids) {
    if (!take(pending, id)) return not_pending(id, pending);
  }
  return {};
}

}  // namespace cairn::session
