#include "session/conversation.h"

#include <utility>

namespace cairn::session {

void Conversation::apply(const EventBody& body) {
  if (const auto* appended = std::get_if<MessageAppended>(&body)) {
    messages.push_back(appended->message);
  } else if (const auto* started = std::get_if<TurnStarted>(&body)) {
    open_turn = OpenTurn{*started, {}};
  } else if (const auto* generated = std::get_if<TokensGenerated>(&body)) {
    if (!open_turn) return;
    open_turn->tokens.insert(open_turn->tokens.end(), generated->tokens.begin(),
                             generated->tokens.end());
  } else if (const auto* ended = std::get_if<TurnEnded>(&body)) {
    // The log has the tokens once, in its TokensGenerated events.
    Message message = ended->message;
    if (open_turn) message.sampled_tokens = std::move(open_turn->tokens);
    messages.push_back(std::move(message));
    open_turn.reset();
  } else if (std::holds_alternative<ModelChanged>(body)) {
    // Of another vocabulary, perhaps: what was said is read as text from here on.
    for (Message& message : messages) message.sampled_tokens.clear();
  }
}

}  // namespace cairn::session
