// What a path through a session's log says: the messages, and the turn that has not ended.
#ifndef CAIRN_SESSION_CONVERSATION_H_
#define CAIRN_SESSION_CONVERSATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "session/records.h"

namespace cairn::session {

// A turn that has begun and not ended: running now, or interrupted by a crash or a cancel.
struct OpenTurn {
  TurnStarted started;
  std::vector<TokenId> tokens;  // in the log
  std::uint64_t event = 0;      // of its start; 0 = it is in no log
};

// The newest turn that has ended and said something: its prompt is what came before its answer.
struct LastTurn {
  TurnStarted started;
  std::size_t answer = 0;       // index of its message
  std::vector<TokenId> tokens;  // of the answer, what the turn went on with included
  std::uint64_t event = 0;      // of its start
  EndReason end_reason = EndReason::kStop;
};

struct Conversation {
  std::vector<Message> messages;
  std::optional<OpenTurn> open_turn;
  std::optional<LastTurn> last_turn;
  std::vector<HeadMoved> moves;  // since a turn began

  // The next event of the path. `sequence`: its own, 0 = it is in no log.
  void apply(const EventBody& body, std::uint64_t sequence = 0);

 private:
  void end_turn(const TurnEnded& ended);
};

// Calls of the last assistant message that no result has answered yet.
std::vector<ToolCall> pending_calls(const std::vector<Message>& messages);

// kUnsupported for messages with images.
Status check_no_image(const Message& message);

// Whether the message has results of calls.
bool may_answer_calls(const Message& message);
// kInvalidArgument if the message, which is to follow `messages`, has the result of a call that is
// not pending; says which are.
Status check_results(const Message& message, const std::vector<Message>& messages);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_CONVERSATION_H_
