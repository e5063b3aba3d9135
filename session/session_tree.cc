// SessionState's part about the tree of its log: marks, rewinds, forks, and the change of the
// model. Every event knows the head after it, so going back reads one event or two, never the path.
#include <algorithm>

#include "engine/output_parser.h"
#include "engine/utf8.h"
#include "session/log_tree.h"
#include "session/session_state.h"

namespace cairn::session {
namespace {

// Of its origin, for the first turns that go back: later ones have the fork's own.
constexpr std::size_t kForkedTails = 4;

Status no_event(const std::string& session, std::uint64_t event) {
  return {StatusCode::kNotFound, "session '" + session + "' has no event " + std::to_string(event),
          "use what Session::mark returned or Session::marks lists"};
}

}  // namespace

Result<std::uint64_t> SessionState::mark(const std::string& name, bool keep_state) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  if (name.size() > kSessionNameBytesMax || engine::valid_utf8_prefix(name) != name.size()) {
    return invalid_argument("mark: its name is not UTF-8 or longer than " +
                            std::to_string(kSessionNameBytesMax) + " bytes");
  }
  Draft draft = this->draft();
  const HeadState& head = draft.head;
  if (keep_state) {
    CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
    CAIRN_ASSIGN_OR_RETURN(const auto tails, tails_before(log, draft.last));
    if (!tails.empty()) {
      draft.commit.shared_tails.push_back({{record().id, tails.front().slot}, draft.last + 1});
    }
  }
  add_event(draft, MarkSet{name, head.chain_key, head.stored_blocks, head.n_tokens});
  CAIRN_RETURN_IF_ERROR(write(draft).status());
  return draft.last;
}

Result<std::vector<TailRecord>> SessionState::tails_before(const SessionLog& log,
                                                           std::uint64_t event) const {
  CAIRN_ASSIGN_OR_RETURN(FoundTails found, store_->store().find_tails(record().id));
  std::vector<TailRecord> tails;
  for (TailRecord& tail : found.tails) {
    const bool is_known = std::ranges::find(tails, tail.number, &TailRecord::number) != tails.end();
    if (is_known) continue;
    CAIRN_ASSIGN_OR_RETURN(const bool leads_there, log.on_path(tail.sequence, event));
    if (leads_there) tails.push_back(std::move(tail));
  }
  std::ranges::stable_sort(tails, std::ranges::greater(), &TailRecord::position);
  return tails;
}

Result<std::vector<Mark>> SessionState::marks() const {
  const std::lock_guard lock(session_->mutex);
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
  std::vector<Mark> marks;
  CAIRN_RETURN_IF_ERROR(log.visit_path(record().origin_sequence, [&](LogEvent&& event) {
    if (auto* mark = std::get_if<MarkSet>(&event.body)) {
      marks.push_back({.event = event.sequence,
                       .name = std::move(mark->name),
                       .time_ms = event.time_ms,
                       .n_tokens = mark->n_tokens});
    }
  }));
  CAIRN_ASSIGN_OR_RETURN(const LogTree tree, store_->store().log_tree(record()));
  for (LogPlace& place : tree.places(record().head_sequence)) {
    marks.push_back({.event = place.event,
                     .name = std::move(place.name),
                     .time_ms = place.time_ms,
                     .n_tokens = place.n_tokens,
                     .has_state = store_->store().find_tail(record().id, place.event).ok(),
                     .rewound = place.rewound});
  }
  std::ranges::stable_sort(marks, {}, &Mark::event);
  return marks;
}

Result<HeadState> SessionState::head_at(const SessionLog& log, std::uint64_t event) const {
  if (event == record().head_sequence) return head_of(record());
  CAIRN_ASSIGN_OR_RETURN(const LogEvent there, log.read(event));
  if (!there.head) return counted_head(log, event);
  HeadState head = *there.head;
  if (!std::holds_alternative<TokensGenerated>(there.body)) return head;
  CAIRN_ASSIGN_OR_RETURN(const LogEvent start, log.read(head.open_turn));
  if (start.head) {
    head.chain_key = start.head->chain_key;
    head.stored_blocks = start.head->stored_blocks;
  }
  return head;
}

// For events of format 1, which do not know the head after them.
Result<HeadState> SessionState::counted_head(const SessionLog& log, std::uint64_t event) const {
  HeadState head;
  Conversation conversation;
  CAIRN_RETURN_IF_ERROR(log.visit_path(event, [&](LogEvent&& next) {
    advance(head, next);
    conversation.apply(next.body, next.sequence);
  }));
  if (!conversation.messages.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, render(conversation.messages));
    const std::size_t n_open =
        conversation.open_turn ? conversation.open_turn->tokens.size() : std::size_t{0};
    head.n_tokens = static_cast<std::int64_t>(prompt.size() + n_open);
  }
  return head;
}

Status SessionState::rewind(std::uint64_t event) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  if (event != 0 && event == record().head_sequence) return {};
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
  CAIRN_ASSIGN_OR_RETURN(const bool contained, log.contains(event));
  if (!contained) return no_event(record().name, event);
  Draft draft = this->draft();
  CAIRN_RETURN_IF_ERROR(add_move(draft, log, event, /*by_sync=*/false));
  return write_move(draft);
}

Status SessionState::add_move(Draft& draft, const SessionLog& log, std::uint64_t event,
                              bool by_sync) const {
  const HeadState left = draft.head;
  Result<HeadState> there = HeadState();
  if (event != 0) there = head_at(log, event);
  CAIRN_ASSIGN_OR_RETURN(draft.head, std::move(there));
  add_event(draft, HeadMoved{record().head_sequence, left.chain_key, left.stored_blocks,
                             left.n_tokens, by_sync});
  draft.commit.events.back().parent = event;
  if (draft.head.last_model == left.last_model) return {};
  CAIRN_ASSIGN_OR_RETURN(Conversation said, conversation_at(log, event));
  return add_model_change(draft, std::move(said));
}

Status SessionState::write_move(Draft& draft) {
  CAIRN_RETURN_IF_ERROR(write(draft).status());
  conversation_.reset();
  live_is_of_head_ = false;
  return {};
}

Result<SessionRecord> SessionState::fork(const std::string& name, std::uint64_t event) const {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  Draft draft = this->draft();
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
  if (event != 0) {
    CAIRN_ASSIGN_OR_RETURN(const bool contained, log.contains(event));
    if (!contained) return no_event(record().name, event);
    draft.last = event;
    CAIRN_ASSIGN_OR_RETURN(draft.head, head_at(log, event));
    if (draft.head.last_model != record().last_model) {
      CAIRN_ASSIGN_OR_RETURN(Conversation said, conversation_at(log, event));
      CAIRN_RETURN_IF_ERROR(add_model_change(draft, std::move(said)));
    }
  }
  const std::uint64_t point = event != 0 ? event : record().head_sequence;
  CAIRN_ASSIGN_OR_RETURN(std::vector<TailRecord> tails, tails_before(log, point));
  if (tails.size() > kForkedTails) tails.resize(kForkedTails);
  return store_->store().fork_session(
      {name, record(), point, draft.head, std::move(draft.commit.events), std::move(tails)});
}

// Whether the tokens of the open turn can be read depends on the vocabulary, which only the prompt
// can show: where it has the tokens that the other model's had, the tokenizers are one.
TurnEnded SessionState::end_of_turn_of_other_model(const Conversation& conversation) const {
  const OpenTurn& turn = *conversation.open_turn;
  const Result<TurnPrompt> prompt = turn_prompt(conversation.messages, turn.started);
  if (prompt.ok() && token_digest(prompt->tokens) == turn.started.prompt_digest) {
    return end_of_open_turn(conversation);
  }
  TurnEnded ended;
  ended.turn = turn.started.turn;
  ended.end_reason = EndReason::kCancelled;
  ended.n_tokens = static_cast<std::int64_t>(turn.tokens.size());
  ended.message.role = Role::kAssistant;
  ended.status_code = StatusCode::kModelMismatch;
  ended.status_message = "its tokens are of another model's vocabulary";
  if (turn.started.continues && !conversation.messages.empty()) {
    ended.message = conversation.messages.back();  // what it would have gone on with stays
  }
  return ended;
}

Status SessionState::add_model_change(Draft& draft, Conversation conversation) const {
  if (conversation.open_turn) {
    TurnEnded ended = end_of_turn_of_other_model(conversation);
    conversation.apply(ended);
    add_event(draft, std::move(ended));
  }
  conversation.apply(ModelChanged{});
  draft.head.n_tokens = draft.head.appended_tokens = 0;
  if (!conversation.messages.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, render(conversation.messages));
    draft.head.n_tokens = static_cast<std::int64_t>(prompt.size());
  }
  add_event(draft, ModelChanged{model_->info().fingerprint});
  return {};
}

Status SessionState::change_model(std::uint32_t kv_namespace) {
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  Draft draft = this->draft();
  CAIRN_RETURN_IF_ERROR(add_model_change(draft, *said));
  draft.record.model_fingerprint = model_->info().fingerprint;
  draft.record.kv_namespace = kv_namespace;
  return write(draft).status();
}

}  // namespace cairn::session
