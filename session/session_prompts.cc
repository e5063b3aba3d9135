// SessionState's part about prompts: what a turn starts from, and what can be said of it without
// running the model.
#include <algorithm>

#include "engine/prompt_markers.h"
#include "session/session_state.h"
#include "session/turn_limits.h"

namespace cairn::session {
namespace {

using engine::PromptSegment;

constexpr const char* kReasoningMark = "reasoning kept";

// Where the segments of the message begin that a turn goes on with: the last one of the prompt.
std::size_t begin_of_message(const std::vector<PromptSegment>& segments, std::size_t message) {
  std::size_t at = segments.size();
  while (at > 0 && segments[at - 1].message == static_cast<int>(message)) --at;
  return at;
}

// What the header at the end says.
bool opens_reasoning(std::span<const PromptSegment> segments) {
  return !segments.empty() && segments.back().kind == PromptSegment::Kind::kMarker &&
         segments.back().text == engine::kThinkBegin;
}

bool has_ended_with_calls(const Message& message, TokenId eos) {
  const std::vector<TokenId>& tokens = message.sampled_tokens;
  return !message.tool_calls.empty() && (tokens.empty() || tokens.back() == eos);
}

}  // namespace

SessionState::PromptMode SessionState::mode_of(ThinkingMode thinking, std::int32_t effort) const {
  PromptMode mode = {record().options.thinking, record().options.effort};
  if (thinking != ThinkingMode::kAsSession) mode.thinking = thinking == ThinkingMode::kOn;
  if (effort != 0) mode.effort = effort;
  return mode;
}

SessionState::PromptMode SessionState::mode_of(const TurnStarted& started) const {
  return mode_of(started.thinking, started.effort);
}

Result<std::vector<PromptSegment>> SessionState::segments(const std::vector<Message>& messages,
                                                          const PromptMode& mode) const {
  engine::PromptOptions options;
  options.thinking = mode.thinking;
  options.effort = mode.effort;
  return engine::render_prompt(messages, options, model_->think_end(), model_->eos());
}

Result<std::vector<TokenId>> SessionState::render(const std::vector<Message>& messages) const {
  CAIRN_ASSIGN_OR_RETURN(const auto segments, this->segments(messages, mode_of()));
  return engine::encode_prompt(segments, model_->tokenizer());
}

// The begun message's tokens are encoded apart from what is before them: the header ends in a
// marker, which no text joins.
Result<SessionState::TurnPrompt> SessionState::turn_prompt(std::vector<Message> messages,
                                                           const TurnStarted& started) const {
  if (started.continues && !messages.empty()) messages.back().leave_open = true;
  CAIRN_ASSIGN_OR_RETURN(const auto segments, this->segments(messages, mode_of(started)));
  const std::size_t n_before =
      started.continues ? begin_of_message(segments, messages.size() - 1) : segments.size();
  const std::span all(segments);
  TurnPrompt prompt;
  prompt.tokens = engine::encode_prompt(all, model_->tokenizer());
  prompt.begun = engine::encode_prompt(all.subspan(n_before), model_->tokenizer());
  prompt.parser.starts_in_reasoning = opens_reasoning(all.first(n_before));
  for (const Message& message : messages) {
    if (message.role == Role::kSystem && !message.tools_json.empty()) {
      prompt.parser.tools_json = message.tools_json;
    }
  }
  prompt.parser.call_id_prefix =
      "call_" + record().id.to_hex().substr(0, 8) + "_" + std::to_string(started.turn) + "_";
  prompt.parser.stop = started.limits.stop;
  prompt.parser.max_calls = started.limits.tool_calls;
  prompt.parser.n_begun = prompt.begun.size();
  if (started.continues && !messages.empty() && !messages.back().tool_calls.empty()) {
    // The calls that it made keep their ids.
    const std::string& id = messages.back().tool_calls[0].id;
    prompt.parser.call_id_prefix = id.substr(0, id.rfind('_') + 1);
  }
  return prompt;
}

Result<std::int64_t> SessionState::count_tokens(const std::vector<Message>& more,
                                                const TurnOptions& options) const {
  const std::lock_guard lock(session_->mutex);
  CAIRN_ASSIGN_OR_RETURN(Conversation said, closed_conversation());
  said.messages.insert(said.messages.end(), more.begin(), more.end());
  CAIRN_ASSIGN_OR_RETURN(const auto segments,
                         this->segments(said.messages, mode_of(options.thinking, options.effort)));
  return static_cast<std::int64_t>(engine::encode_prompt(segments, model_->tokenizer()).size());
}

Message SessionState::answer(const engine::ParsedOutput& output) const {
  Message message;
  message.role = Role::kAssistant;
  if (!output.text.empty()) message.content.push_back({ContentBlock::Kind::kText, output.text, {}});
  message.reasoning = output.reasoning;
  message.tool_calls = output.tool_calls;
  return message;
}

TurnEnded SessionState::end_of_open_turn(const Conversation& conversation) const {
  const OpenTurn& turn = *conversation.open_turn;
  const Result<TurnPrompt> prompt = turn_prompt(conversation.messages, turn.started);
  engine::OutputParser parser(model_->tokenizer(),
                              prompt.ok() ? prompt->parser : engine::OutputParserOptions());
  std::vector<engine::OutputEvent> events;
  for (const TokenId token : turn.started.begun) parser.push(token, events);
  for (const TokenId token : turn.tokens) parser.push(token, events);
  parser.finish(/*complete=*/false, events);
  TurnEnded ended;
  ended.turn = turn.started.turn;
  ended.end_reason = EndReason::kCancelled;
  ended.n_tokens = static_cast<std::int64_t>(turn.tokens.size());
  ended.message = answer(parser.output());
  return ended;
}

Status SessionState::check_turn(const std::vector<Message>& messages,
                                const TurnOptions& options) const {
  CAIRN_RETURN_IF_ERROR(validate(options));
  if (options.effort < 0 || options.effort > 100) {
    return invalid_argument("effort is " + std::to_string(options.effort) + ", must be 1 to 100");
  }
  const bool answered = !messages.empty() && messages.back().role == Role::kAssistant;
  if (options.continue_answer) {
    if (!answered) {
      return invalid_argument("session '" + record().name + "' has no answer to go on with",
                              "its last message has to be the assistant's");
    }
    if (!has_ended_with_calls(messages.back(), model_->eos())) return {};
    return invalid_argument("session '" + record().name + "': its last message made its calls",
                            "append their results first");
  }
  if (messages.empty() || answered || messages.back().role == Role::kLatestReminder) {
    return invalid_argument("session '" + record().name + "' has nothing to answer",
                            "append a user message or a tool result first");
  }
  return {};
}

Result<SessionState::TurnInput> SessionState::begin_turn(const TurnOptions& options) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  if (record().open_turn != 0) {
    return invalid_argument("session '" + record().name + "' has an interrupted turn",
                            "resume it, or append a message to keep what it said and go on");
  }
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  const std::vector<Message>& messages = said->messages;
  CAIRN_RETURN_IF_ERROR(check_turn(messages, options));
  TurnStarted started = turn_started(options);
  CAIRN_ASSIGN_OR_RETURN(TurnPrompt prompt, turn_prompt(messages, started));
  TurnInput input;
  input.prompt = std::move(prompt.tokens);
  input.parser = std::move(prompt.parser);
  started.begun = std::move(prompt.begun);
  started.n_prompt_tokens = static_cast<std::int64_t>(input.prompt.size());
  started.prompt_digest = token_digest(input.prompt);
  CAIRN_RETURN_IF_ERROR(check_room(started.n_prompt_tokens, options.limits.context_tokens));
  CAIRN_ASSIGN_OR_RETURN(input.constraint, constraint(started, input.parser));
  CAIRN_RETURN_IF_ERROR(add_known(*said, mode_of(started), input));
  input.turn.started = std::move(started);
  Draft draft = this->draft();
  if (input.comparison.cause == MissCause::kReasoningDropped && !input.comparison.moved) {
    // The blocks with the reasoning stay: a tool, or going back, brings it into the prompt again.
    const HeadState& head = draft.head;
    add_event(draft, MarkSet{kReasoningMark, head.chain_key, head.stored_blocks, head.n_tokens});
  }
  add_event(draft, input.turn.started);
  CAIRN_RETURN_IF_ERROR(write(draft).status());
  input.event = draft.last;
  session_->running = live_is_of_head_ = true;
  return input;
}

TurnStarted SessionState::turn_started(const TurnOptions& options) const {
  TurnStarted started;
  started.turn = record().n_turns;
  started.sampling = options.sampling;
  started.max_tokens = options.max_tokens;
  started.thinking = options.thinking;
  started.effort = options.effort;
  started.continues = options.continue_answer;
  started.limits = options.limits;
  started.priority = options.priority;
  started.output = options.output;
  return started;
}

Result<std::shared_ptr<engine::OutputConstraint>> SessionState::constraint(
    const TurnStarted& started, const engine::OutputParserOptions& parser) {
  if (started.output == OutputRules{}) return std::shared_ptr<engine::OutputConstraint>();
  engine::OutputConstraintOptions options{parser.starts_in_reasoning, parser.tools_json,
                                          started.output};
  if (constraint_ == nullptr || options != constraint_options_) {
    CAIRN_ASSIGN_OR_RETURN(auto vocabulary, model_->constraint_vocabulary());
    CAIRN_ASSIGN_OR_RETURN(constraint_,
                           engine::OutputConstraint::create(std::move(vocabulary), options));
    constraint_options_ = std::move(options);
  }
  engine::ConstraintState state(constraint_);
  for (const TokenId token : started.begun) {
    if (state.advance(token).ok()) continue;
    return invalid_argument(
        "session '" + record().name + "': what the message says already breaks the output rules",
        "go on without them, or ask for another answer");
  }
  return constraint_;
}

Result<SessionState::EndedTurn> SessionState::ended_turn() const {
  const std::lock_guard lock(session_->mutex);
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  if (record().open_turn != 0 || !said->last_turn || said->last_turn->event == 0) {
    return Status(StatusCode::kNotFound, "session '" + record().name + "' has no turn to attach to",
                  "start or resume one; messages() has what earlier ones said");
  }
  const LastTurn& turn = *said->last_turn;
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
  CAIRN_ASSIGN_OR_RETURN(const Conversation before, conversation_at(log, turn.event));
  CAIRN_ASSIGN_OR_RETURN(TurnPrompt prompt, turn_prompt(before.messages, turn.started));
  EndedTurn ended;
  ended.reason = turn.end_reason;
  ended.input.event = turn.event;
  ended.input.turn.started = turn.started;
  ended.input.turn.event = turn.event;
  const auto n_begun = static_cast<std::ptrdiff_t>(turn.started.begun.size());
  ended.input.turn.tokens.assign(turn.tokens.begin() + n_begun, turn.tokens.end());
  ended.input.prompt = std::move(prompt.tokens);
  ended.input.parser = std::move(prompt.parser);
  return ended;
}

Result<SessionState::TurnInput> SessionState::resume_turn() {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  if (record().open_turn == 0) {
    return Status(StatusCode::kNotFound, "session '" + record().name + "' has no interrupted turn");
  }
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  if (!said->open_turn) {
    return corrupt("session '" + record().name + "': its log has no start of its open turn");
  }
  const OpenTurn& turn = *said->open_turn;
  CAIRN_ASSIGN_OR_RETURN(TurnPrompt prompt, turn_prompt(said->messages, turn.started));
  TurnInput input;
  input.prompt = std::move(prompt.tokens);
  input.parser = std::move(prompt.parser);
  if (token_digest(input.prompt) != turn.started.prompt_digest) {
    return internal_error("session '" + record().name +
                          "': the interrupted turn's prompt renders differently than it did");
  }
  CAIRN_ASSIGN_OR_RETURN(input.constraint, constraint(turn.started, input.parser));
  input.turn = turn;
  input.event = record().open_turn;
  CAIRN_RETURN_IF_ERROR(add_known(*said, mode_of(turn.started), input));
  if (!turn.tokens.empty()) {  // else it was perhaps stopped before its prompt was computed
    const auto n_known = static_cast<std::int64_t>(input.prompt.size() + turn.tokens.size());
    input.comparison = {};
    input.comparison.known_tokens = input.comparison.common_tokens = n_known;
    input.comparison.repeated = {{0, n_known - 1}};
    input.other_model = false;
  }
  session_->running = live_is_of_head_ = true;
  return input;
}

}  // namespace cairn::session
