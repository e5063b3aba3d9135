// SessionState's part about histories that clients send whole, and about what turns would cost.
#include <algorithm>
#include <future>

#include "engine/runtime.h"
#include "session/history_sync.h"
#include "session/log_tree.h"
#include "session/reuse_explanation.h"
#include "session/session_state.h"

namespace cairn::session {
namespace {

constexpr std::size_t kBranchesMax = 32;  // the newest are looked at
constexpr double kMib = 1024 * 1024;

std::vector<Message> answers_in(const std::vector<Conversation>& conversations) {
  std::vector<Message> answers;
  for (const Conversation& said : conversations) {
    for (const Message& message : said.messages) {
      if (message.role == Role::kAssistant) answers.push_back(message);
    }
  }
  return answers;
}

std::int64_t n_kept(const HistorySync& sync) {
  return std::ranges::count_if(sync.synced, [](const SyncedMessage& message) {
    return message.match != SyncMatch::kNone && !message.appended;
  });
}

}  // namespace

Status SessionState::check_history(const std::vector<Message>& messages) const {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Status status = engine::check_message(messages[i]);
    if (status.ok()) status = check_no_image(messages[i]);
    if (status.ok()) continue;
    return {status.code(), "messages[" + std::to_string(i) + "]: " + std::string(status.message()),
            std::string(status.hint())};
  }
  return {};
}

Result<std::vector<Conversation>> SessionState::branches(const SessionLog& log) const {
  std::vector<Conversation> conversations;
  if (record().n_branches == 0) return conversations;
  CAIRN_ASSIGN_OR_RETURN(const LogTree tree, store_->store().log_tree(record()));
  const std::vector<LogPlace> places = tree.places(record().head_sequence);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    if (conversations.size() == kBranchesMax) break;
    if (!place->rewound) continue;
    Result<Conversation> said = conversation_at(log, place->event);
    if (said.status().code() == StatusCode::kCorrupt) continue;  // it was collected meanwhile
    if (!said.ok()) return said.status();
    conversations.push_back(std::move(*said));
  }
  return conversations;
}

// The head's own path is enough where it only goes on. Otherwise the branch that keeps most is
// taken: a client may come back to what it left.
Result<SessionState::SyncDraft> SessionState::draft_sync(const std::vector<Message>& messages,
                                                         const SyncOptions& options) const {
  CAIRN_ASSIGN_OR_RETURN(Conversation head, closed_conversation());
  HistorySync sync = sync_history(head.messages, {}, messages, options);
  const Conversation* base = &head;
  std::vector<Conversation> others;
  if (sync.n_kept < head.messages.size()) {
    CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
    CAIRN_ASSIGN_OR_RETURN(others, branches(log));
    std::vector<Message> answers = answers_in(others);
    std::ranges::copy(answers_in({head}), std::back_inserter(answers));
    sync = sync_history(head.messages, answers, messages, options);
    for (const Conversation& other : others) {
      HistorySync there = sync_history(other.messages, answers, messages, options);
      if (n_kept(there) <= n_kept(sync)) continue;
      sync = std::move(there);
      base = &other;
    }
  }
  SyncDraft draft;
  const auto kept = base->messages.begin() + static_cast<std::ptrdiff_t>(sync.n_kept);
  draft.moves = base != &head || sync.n_kept < head.messages.size();
  draft.place = sync.n_kept == 0 ? 0 : base->messages[sync.n_kept - 1].event;
  draft.after.assign(base->messages.begin(), kept);
  std::ranges::copy(sync.appended, std::back_inserter(draft.after));
  draft.appended = std::move(sync.appended);
  SyncReport& report = draft.report;
  report.n_kept = n_kept(sync);
  report.n_appended = std::ranges::count(sync.synced, true, &SyncedMessage::appended);
  report.messages = std::move(sync.synced);
  report.forked = draft.moves;
  report.forked_at = draft.moves ? draft.place : 0;
  if (draft.moves) {
    const auto shared =
        std::ranges::mismatch(head.messages, draft.after, {}, &Message::event, &Message::event);
    report.n_left = head.messages.end() - shared.in1;
  }
  if (base != &head) {
    CAIRN_ASSIGN_OR_RETURN(draft.known, known_conversations(*base));
  }
  CAIRN_ASSIGN_OR_RETURN(std::vector<KnownConversation> left, known_conversations(std::move(head)));
  for (KnownConversation& known : left) {
    if (draft.moves) known.move = HeadMove::kBySync;
    draft.known.push_back(std::move(known));
  }
  return draft;
}

Status SessionState::describe_sync(const PromptMode& mode, SyncDraft& draft) const {
  SyncReport& report = draft.report;
  if (draft.after.empty()) {
    report.detail = "the conversation is empty";
    return {};
  }
  CAIRN_ASSIGN_OR_RETURN(const auto segments, this->segments(draft.after, mode));
  const std::vector<TokenId> prompt = engine::encode_prompt(segments, model_->tokenizer());
  report.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  CAIRN_ASSIGN_OR_RETURN(PromptComparison comparison, compare(draft.after, mode, draft.known));
  report.common_tokens = comparison.common_tokens;
  report.difference = std::move(comparison.difference);
  report.cause = comparison.cause;
  report.detail = std::move(comparison.detail);
  if (report.cause == MissCause::kNone && draft.moves) {
    report.cause = MissCause::kHeadMoved;
    report.detail = "the client went back to an earlier place";
  }
  if (report.detail.empty()) report.detail = "the conversation goes on";
  return {};
}

Status SessionState::write_sync(const SyncDraft& sync) {
  Draft draft = this->draft();
  if (sync.moves) {
    CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
    CAIRN_RETURN_IF_ERROR(add_move(draft, log, sync.place, /*by_sync=*/true));
  } else if (record().open_turn != 0) {
    CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
    add_event(draft, end_of_open_turn(*said));
  }
  if (!sync.appended.empty()) {
    draft.head.appended_tokens =
        std::max<std::int64_t>(sync.report.prompt_tokens - draft.head.n_tokens, 1);
  }
  for (const Message& message : sync.appended) add_event(draft, MessageAppended{message});
  if (draft.commit.events.empty()) return {};
  return sync.moves ? write_move(draft) : write(draft).status();
}

Result<SyncReport> SessionState::sync(const std::vector<Message>& messages,
                                      const SyncOptions& options) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  CAIRN_RETURN_IF_ERROR(check_history(messages));
  CAIRN_ASSIGN_OR_RETURN(SyncDraft draft, draft_sync(messages, options));
  CAIRN_RETURN_IF_ERROR(describe_sync(mode_of(), draft));
  CAIRN_RETURN_IF_ERROR(check_room(draft.report.prompt_tokens));
  CAIRN_RETURN_IF_ERROR(write_sync(draft));
  return std::move(draft.report);
}

// -- plans --

Result<TurnPlan> SessionState::plan(const TurnOptions& options) const {
  std::unique_lock lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  CAIRN_ASSIGN_OR_RETURN(Conversation said, closed_conversation());
  CAIRN_RETURN_IF_ERROR(check_turn(said.messages, options));
  CAIRN_ASSIGN_OR_RETURN(const auto known, known_conversations(said));
  return plan_turn(said, known, options);
}

Result<TurnPlan> SessionState::plan_sync(const std::vector<Message>& messages,
                                         const TurnOptions& options,
                                         const SyncOptions& sync_options) const {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  CAIRN_RETURN_IF_ERROR(check_history(messages));
  CAIRN_ASSIGN_OR_RETURN(SyncDraft draft, draft_sync(messages, sync_options));
  CAIRN_RETURN_IF_ERROR(describe_sync(mode_of(options.thinking, options.effort), draft));
  CAIRN_RETURN_IF_ERROR(check_turn(draft.after, options));
  Conversation after;
  after.messages = std::move(draft.after);
  CAIRN_ASSIGN_OR_RETURN(TurnPlan plan, plan_turn(after, draft.known, options));
  plan.sync = std::move(draft.report);
  return plan;
}

// The live state is the strand's: the plan is made there, between the steps of other turns. This
// session runs none, and none can begin before the session's mutex is free.
Result<RestorePlan> SessionState::plan_restore(const std::vector<TokenId>& prompt) const {
  std::promise<Result<RestorePlan>> made;
  model_->runtime()->post([&] {
    try {
      made.set_value(live_.plan(prompt));
    } catch (...) {
      made.set_value(Status(StatusCode::kOutOfMemory, "out of memory while a turn was planned"));
    }
  });
  return made.get_future().get();
}

Result<TurnPlan> SessionState::plan_turn(const Conversation& said,
                                         const std::vector<KnownConversation>& known,
                                         const TurnOptions& options) const {
  const TurnStarted started = turn_started(options);
  CAIRN_ASSIGN_OR_RETURN(TurnPrompt prompt, turn_prompt(said.messages, started));
  CAIRN_RETURN_IF_ERROR(check_room(static_cast<std::int64_t>(prompt.tokens.size())));
  TurnInput input;
  CAIRN_ASSIGN_OR_RETURN(input.comparison, compare(said.messages, mode_of(started), known));
  input.stored_blocks = record().stored_blocks;
  input.us_per_token = record().prefill_us_per_token;
  input.other_model = is_of_other_model(said.messages, known);
  input.prompt = std::move(prompt.tokens);
  CAIRN_ASSIGN_OR_RETURN(const RestorePlan restore, plan_restore(input.prompt));
  TurnPlan plan;
  plan.reuse = restore.report;
  plan.reuse.restore_ms = static_cast<double>(plan.reuse.bytes_read) / kMib *
                          static_cast<double>(record().restore_us_per_mib) / 1000;
  plan.memory_bytes = restore.memory_bytes;
  const std::int64_t n_rows = plan.reuse.prefilled + plan.reuse.replayed;
  plan.prefill_ms = static_cast<double>(n_rows) * input.us_per_token / 1000;
  explain_reuse(input, restore.n_blocks_found, plan.reuse);
  return plan;
}

}  // namespace cairn::session
