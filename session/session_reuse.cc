// SessionState's part about what it computed before: which prompt a new one is compared with. After
// a rewind or a sync that is the prompt of the branch that was left, which the log still has.
#include <algorithm>

#include "session/session_state.h"

namespace cairn::session {
namespace {

constexpr std::size_t kComparedMax = 8;  // conversations; a host that moves about says no more

}  // namespace

Result<engine::RenderedPrompt> SessionState::known_prompt(const Conversation& conversation) const {
  const LastTurn& turn = *conversation.last_turn;
  const std::vector<Message> before(
      conversation.messages.begin(),
      conversation.messages.begin() + static_cast<std::ptrdiff_t>(turn.answer));
  CAIRN_ASSIGN_OR_RETURN(auto segments, this->segments(before, mode_of(turn.started)));
  engine::PromptSegment& answer = segments.emplace_back();
  answer.kind = engine::PromptSegment::Kind::kSampled;
  answer.tokens = turn.tokens;
  answer.message = static_cast<int>(turn.answer);
  return engine::rendered_prompt(segments, model_->tokenizer());
}

Result<std::vector<SessionState::KnownConversation>> SessionState::known_conversations(
    Conversation said) const {
  std::vector<KnownConversation> known;
  known.push_back({std::move(said), HeadMove::kNone});
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
  for (std::size_t i = 0; i < known.size(); ++i) {
    const std::vector<HeadMoved> moves = known[i].conversation.moves;
    for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
      if (known.size() >= kComparedMax) return known;
      if (move->from == 0) continue;
      Result<Conversation> left = conversation_at(log, move->from);
      if (left.status().code() == StatusCode::kCorrupt) continue;  // the branch was collected
      if (!left.ok()) return left.status();
      if (left->open_turn) left->apply(end_of_open_turn(*left));
      known.push_back({std::move(*left), move->by_sync ? HeadMove::kBySync : HeadMove::kByHost});
    }
  }
  return known;
}

// What was left comes first where it has as much in common: it says why it was left.
Result<PromptComparison> SessionState::compare(const std::vector<Message>& messages,
                                               const PromptMode& mode,
                                               const std::vector<KnownConversation>& known) const {
  CAIRN_ASSIGN_OR_RETURN(const auto segments, this->segments(messages, mode));
  const engine::Tokenizer& tokenizer = model_->tokenizer();
  const ShownConversation given = {messages, mode.thinking, mode.effort,
                                   engine::rendered_prompt(segments, tokenizer)};
  PromptComparison best;
  for (const KnownConversation& candidate : known) {
    const Conversation& said = candidate.conversation;
    if (!said.last_turn) continue;
    CAIRN_ASSIGN_OR_RETURN(engine::RenderedPrompt prompt, known_prompt(said));
    const PromptMode known_mode = mode_of(said.last_turn->started);
    const ShownConversation shown = {std::span(said.messages).first(said.last_turn->answer + 1),
                                     known_mode.thinking, known_mode.effort, std::move(prompt)};
    PromptComparison comparison = compare_prompts(shown, given, candidate.move, tokenizer);
    const bool is_better =
        comparison.common_tokens > best.common_tokens ||
        (comparison.common_tokens == best.common_tokens && candidate.move != HeadMove::kNone);
    if (is_better) best = std::move(comparison);
  }
  return best;
}

Status SessionState::add_known(const Conversation& said, const PromptMode& mode,
                               TurnInput& input) const {
  CAIRN_ASSIGN_OR_RETURN(const auto known, known_conversations(said));
  CAIRN_ASSIGN_OR_RETURN(input.comparison, compare(said.messages, mode, known));
  input.stored_blocks = record().stored_blocks;
  input.us_per_token = record().prefill_us_per_token;
  input.other_model = is_of_other_model(said.messages, known);
  return {};
}

// What was computed is forgotten with the model that computed it.
bool SessionState::is_of_other_model(const std::vector<Message>& messages,
                                     const std::vector<KnownConversation>& known) const {
  const auto is_answer = [](const Message& m) { return m.role == Role::kAssistant; };
  const auto was_computed = [](const KnownConversation& k) {
    return k.conversation.last_turn.has_value();
  };
  return record().last_model > 0 && std::ranges::none_of(known, was_computed) &&
         std::ranges::any_of(messages, is_answer);
}

}  // namespace cairn::session
