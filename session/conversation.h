// What a path through a session's log says: the messages, and the turn that has not ended.
#ifndef CAIRN_SESSION_CONVERSATION_H_
#define CAIRN_SESSION_CONVERSATION_H_

#include <optional>
#include <vector>

#include "session/records.h"

namespace cairn::session {

// A turn that has begun and not ended: running now, or interrupted by a crash or a cancel.
struct OpenTurn {
  TurnStarted started;
  std::vector<TokenId> tokens;  // in the log
};

struct Conversation {
  std::vector<Message> messages;
  std::optional<OpenTurn> open_turn;

  // The next event of the path.
  void apply(const EventBody& body);
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_CONVERSATION_H_
