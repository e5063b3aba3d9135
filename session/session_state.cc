// Log and conversation. Every change is a commit first and a change in memory after it succeeded,
// so a failed write leaves the session as it was.
#include "session/session_state.h"

#include <algorithm>
#include <chrono>

#include "engine/sampler.h"
#include "session/block_key.h"
#include "session/history_sync.h"
#include "session/turn_tails.h"

namespace cairn::session {
namespace {

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr std::size_t kSaltBytesMax = 1024;

// Tokens that a message may add to a prompt beyond those of a prompt of its own: where texts join
// they may be split differently, and a marker may be needed that its own prompt lacks.
constexpr std::int64_t kTokensAtJoints = 64;

KvNamespace namespace_of(const engine::LoadedModel& model, const StoreState& store,
                         const SessionOptions& options) {
  return {model.info().fingerprint, kKvFormatVersion, store.store().kv_salt() + options.salt};
}

Status check_options(const SessionOptions& options) {
  if (options.effort < 1 || options.effort > 100) {
    return invalid_argument("effort is " + std::to_string(options.effort) + ", must be 1 to 100");
  }
  if (options.restore != RestorePolicy::kExact && options.restore != RestorePolicy::kBounded) {
    return invalid_argument("restore policy has no value " +
                            std::to_string(static_cast<int>(options.restore)));
  }
  if (options.durability < SessionDurability::kGrouped ||
      options.durability > SessionDurability::kBuffered) {
    return invalid_argument("durability has no value " +
                            std::to_string(static_cast<int>(options.durability)));
  }
  if (options.salt.size() > kSaltBytesMax) {
    return invalid_argument("salt: " + std::to_string(options.salt.size()) + " bytes; at most " +
                            std::to_string(kSaltBytesMax) + " are allowed");
  }
  return {};
}

Status other_model(const SessionRecord& record, const engine::LoadedModel& model) {
  return {StatusCode::kModelMismatch,
          "session '" + record.name + "' was made by model " +
              record.model_fingerprint.substr(0, 12) + ", the open model is " +
              model.info().fingerprint.substr(0, 12),
          "open it with the checkpoint, tokenizer and numerics it was made with, or allow another "
          "model"};
}

// Of measures in a row, the newest of which counts a quarter; 0 = not measured.
float smoothed(float before, float measured) {
  if (measured <= 0) return before;
  return before <= 0 ? measured : before + (measured - before) / 4;
}

}  // namespace

SessionState::SessionState(std::shared_ptr<engine::LoadedModel> model,
                           std::shared_ptr<StoreState> store, SessionLease lease,
                           KvNamespace kv_namespace)
    : model_(std::move(model)),
      store_(std::move(store)),
      lease_(std::move(lease)),
      session_(lease_.session()),
      durability_(record().options.durability),
      live_(model_, {&store_->store(), &store_->pages(), record().id, std::move(kv_namespace),
                     record().options.restore}) {
  store_->live_memory().add(*this);
}

SessionState::~SessionState() { store_->live_memory().remove(*this); }

Result<std::shared_ptr<SessionState>> SessionState::create(
    std::shared_ptr<engine::LoadedModel> model, std::shared_ptr<StoreState> store,
    const std::string& name, const SessionOptions& options) {
  CAIRN_RETURN_IF_ERROR(check_options(options));
  CAIRN_ASSIGN_OR_RETURN(const std::uint32_t number,
                         store->store().open_namespace(namespace_of(*model, *store, options)));
  CAIRN_RETURN_IF_ERROR(
      store->store().create_session({name, model->info().fingerprint, options, number}).status());
  return open(std::move(model), std::move(store), name, {});
}

Result<std::shared_ptr<SessionState>> SessionState::open(std::shared_ptr<engine::LoadedModel> model,
                                                         std::shared_ptr<StoreState> store,
                                                         const std::string& name,
                                                         const OpenOptions& options) {
  const auto is_other = [&](const SessionRecord& record) {
    return record.model_fingerprint != model->info().fingerprint;
  };
  CAIRN_ASSIGN_OR_RETURN(const SessionRecord found, store->store().find_by_name(name));
  if (is_other(found) && !options.allow_other_model) return other_model(found, *model);
  CAIRN_ASSIGN_OR_RETURN(SessionLease lease, store->store().lease(found.id));
  const std::shared_ptr<OpenSession> open = lease.session();
  const std::lock_guard lock(open->mutex);
  // The record may have changed until the lease was ours.
  const SessionRecord& record = open->record;
  if (is_other(record) && !options.allow_other_model) return other_model(record, *model);
  const bool changes_model = is_other(record);
  const KvNamespace kv_namespace = namespace_of(*model, *store, record.options);
  CAIRN_ASSIGN_OR_RETURN(const std::uint32_t number, store->store().open_namespace(kv_namespace));
  std::shared_ptr<SessionState> session(
      new SessionState(std::move(model), std::move(store), std::move(lease), kv_namespace));
  CAIRN_RETURN_IF_ERROR(session->complete_record());
  if (changes_model) CAIRN_RETURN_IF_ERROR(session->change_model(number));
  return session;
}

// Format 1 counted neither turns nor appended tokens; what format 2 wrote has one of them as soon
// as there is anything to count.
Status SessionState::complete_record() {
  const bool counted =
      record().n_turns > 0 || record().appended_tokens > 0 || record().last_model > 0;
  if (record().head_sequence == 0 || counted) return {};
  CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
  CAIRN_ASSIGN_OR_RETURN(const HeadState head, counted_head(log, record().head_sequence));
  set_head(session_->record, head);
  return {};
}

Result<Conversation> SessionState::conversation_at(const SessionLog& log,
                                                   std::uint64_t event) const {
  Conversation conversation;
  CAIRN_RETURN_IF_ERROR(log.visit_path(
      event, [&](LogEvent&& next) { conversation.apply(next.body, next.sequence); }));
  return conversation;
}

Result<const Conversation*> SessionState::conversation() const {
  if (!conversation_) {
    CAIRN_ASSIGN_OR_RETURN(const SessionLog log, store_->store().log(record()));
    CAIRN_ASSIGN_OR_RETURN(conversation_, conversation_at(log, record().head_sequence));
  }
  return &*conversation_;
}

SessionState::Draft SessionState::draft() const {
  Draft draft;
  draft.commit.session = record().id;
  draft.commit.durability =
      durability_ == SessionDurability::kBuffered ? Durability::kBuffered : Durability::kSynced;
  draft.record = record();
  draft.head = head_of(record());
  draft.last = record().head_sequence;
  return draft;
}

void SessionState::add_event(Draft& draft, EventBody body) const {
  LogEvent& event = draft.commit.events.emplace_back();
  event.parent = draft.last;
  event.sequence = ++draft.last;
  event.time_ms = now_ms();
  event.body = std::move(body);
  advance(draft.head, event);
  event.head = draft.head;
}

Result<CommitReceipt> SessionState::write(Draft& draft) {
  Commit& commit = draft.commit;
  SessionRecord after = draft.record;
  after.head_sequence = draft.last;
  after.n_events += commit.events.size();
  after.used_ms = now_ms();
  set_head(after, draft.head);
  for (LogEvent& event : commit.events) {  // all of them stand where the commit's blocks do
    event.head->chain_key = draft.head.chain_key;
    event.head->stored_blocks = draft.head.stored_blocks;
    if (std::holds_alternative<HeadMoved>(event.body)) ++after.n_branches;
  }
  commit.kv_namespace = after.kv_namespace;
  commit.record = after;
  CAIRN_ASSIGN_OR_RETURN(CommitReceipt receipt, store_->store().commit(commit));
  session_->record = std::move(after);
  say_again(commit.events);
  return receipt;
}

// What is written is written: without memory for it the conversation is read from the log again.
void SessionState::say_again(const std::vector<LogEvent>& events) noexcept {
  if (!conversation_) return;
  try {
    for (const LogEvent& event : events) conversation_->apply(event.body, event.sequence);
  } catch (...) {
    conversation_.reset();
  }
}

Status SessionState::check_not_running() const {
  if (!session_->running) return {};
  return {StatusCode::kBusy, "session '" + record().name + "' runs a turn",
          "read the turn to its end or cancel it first"};
}

// What the format cannot say, or the model cannot read, is not logged.
Status SessionState::append(const Message& message) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  CAIRN_RETURN_IF_ERROR(engine::check_message(message));
  CAIRN_RETURN_IF_ERROR(check_no_image(message));
  std::vector<Message> messages = {message};
  if (may_answer_calls(message) || has_volatile_text(message)) {
    CAIRN_ASSIGN_OR_RETURN(const Conversation said, closed_conversation());
    CAIRN_RETURN_IF_ERROR(check_results(message, said.messages));
    messages = place_volatile(split_volatile(message, {}), said.messages);
  }
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t appended_tokens, appended_tokens_with(messages));
  Draft draft = this->draft();
  if (record().open_turn != 0) {
    CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
    add_event(draft, end_of_open_turn(*said));
  }
  draft.head.appended_tokens = appended_tokens;
  for (Message& each : messages) add_event(draft, MessageAppended{std::move(each)});
  return write(draft).status();
}

Result<Conversation> SessionState::closed_conversation() const {
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  Conversation closed = *said;
  if (closed.open_turn) closed.apply(end_of_open_turn(closed));
  return closed;
}

// Tools bring back what the template dropped of earlier reasoning; so may any message where the
// tokenizer does not tell reasoning from answer.
std::optional<std::int64_t> SessionState::tokens_at_most(const Message& message) const {
  if (!message.tools_json.empty()) return std::nullopt;
  if (record().options.thinking && model_->think_end() < 0) return std::nullopt;
  const Result<std::vector<TokenId>> alone = render({message});
  if (!alone.ok()) return std::nullopt;
  return static_cast<std::int64_t>(alone->size()) + kTokensAtJoints;
}

// The log only grows: a message that leaves no room for an answer would end the session for good.
// While an estimate that errs upwards leaves room, the conversation is not looked at.
Result<std::int64_t> SessionState::appended_tokens_with(
    const std::vector<Message>& messages) const {
  const std::int64_t head_tokens = record().head_tokens;
  std::int64_t appended = record().appended_tokens;
  bool is_known = record().open_turn == 0;
  for (const Message& message : messages) {
    const std::optional<std::int64_t> added = tokens_at_most(message);
    is_known = is_known && added;
    appended += added.value_or(0);
  }
  if (is_known && head_tokens + appended < model_->info().max_context) return appended;
  CAIRN_ASSIGN_OR_RETURN(Conversation after, closed_conversation());
  after.messages.insert(after.messages.end(), messages.begin(), messages.end());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, render(after.messages));
  const auto n_prompt = static_cast<std::int64_t>(prompt.size());
  CAIRN_RETURN_IF_ERROR(check_room(n_prompt));
  return std::max<std::int64_t>(n_prompt - head_tokens, 1);
}

Status SessionState::check_room(std::int64_t n_prompt_tokens, std::int64_t limit) const {
  const std::int64_t max_context = model_->info().max_context;
  const bool is_limited = limit > 0 && limit < max_context;
  const std::int64_t room = is_limited ? limit : max_context;
  if (n_prompt_tokens < room) return {};
  return {StatusCode::kContextFull,
          "session '" + record().name + "': the prompt would have " +
              std::to_string(n_prompt_tokens) + " tokens, the " +
              (is_limited ? "turn's limit of context is " : "context holds ") +
              std::to_string(room),
          "shorten the message, or start a session with a shorter history"};
}

Result<std::vector<Message>> SessionState::messages() const {
  const std::lock_guard lock(session_->mutex);
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  return said->messages;
}

bool SessionState::has_messages() const {
  const std::lock_guard lock(session_->mutex);
  return record().head_tokens > 0 || record().appended_tokens > 0;
}

SessionInfo SessionState::info() const {
  const std::lock_guard lock(session_->mutex);
  return session_info(record());
}

void SessionState::set_stored_chain(Draft& draft) const {
  const std::vector<NewBlock>& blocks = draft.commit.blocks;
  draft.head.chain_key = blocks.empty() ? live_.stored_chain_key() : blocks.back().key;
  draft.head.stored_blocks = static_cast<std::uint32_t>(live_.n_stored_blocks()) +
                             static_cast<std::uint32_t>(blocks.size());
}

Result<std::int64_t> SessionState::write_surplus_blocks() {
  std::int64_t n_bytes = 0;
  while (live_.n_new_blocks() > static_cast<std::int64_t>(kCommitBlocks)) {
    Draft draft = this->draft();
    draft.commit.durability = Durability::kBuffered;
    LiveSequence::Payloads payloads;
    live_.add_blocks(draft.commit, payloads);
    set_stored_chain(draft);
    CAIRN_ASSIGN_OR_RETURN(const CommitReceipt receipt, write(draft));
    live_.committed(draft.commit);
    n_bytes += receipt.bytes_written;
  }
  return n_bytes;
}

// A prompt's end is what the conversation before the turn leads to, whichever turn gets there.
void SessionState::add_tail(Draft& draft, StateToStore state, LiveSequence::Payloads& payloads) {
  Commit& commit = draft.commit;
  const std::uint64_t stands_at =
      state == StateToStore::kPromptTail ? record().open_turn - 1 : draft.last;
  live_.add_tail(commit, stands_at, payloads);
  if (state == StateToStore::kTail) return;
  commit.shared_tails.push_back({{commit.session, kHeadTail}, stands_at});
}

Result<std::int64_t> SessionState::write_with_state(Draft& draft, StateToStore state) {
  Commit& commit = draft.commit;
  LiveSequence::Payloads payloads;
  std::int64_t n_bytes = 0;
  if (state != StateToStore::kNothing) {
    const Result<std::int64_t> surplus = write_surplus_blocks();
    if (surplus.ok()) {
      n_bytes = *surplus;
      live_.add_blocks(commit, payloads);
      if (state >= StateToStore::kTail && live_.ready()) add_tail(draft, state, payloads);
    } else if (surplus.status().code() == StatusCode::kOutOfDisk) {
      count_without_state();
    } else {
      return surplus.status();
    }
  }
  if (commit.events.empty() && commit.blocks.empty() && !commit.tail) return n_bytes;
  set_stored_chain(draft);
  Result<CommitReceipt> receipt = write(draft);
  if (receipt.status().code() == StatusCode::kOutOfDisk &&
      (!commit.blocks.empty() || commit.tail)) {
    count_without_state();
    commit.blocks.clear();
    commit.tail.reset();
    commit.shared_tails.clear();
    if (commit.events.empty()) return n_bytes;  // nothing lost but a later restore's time
    set_stored_chain(draft);
    receipt = write(draft);
  }
  if (!receipt.ok()) return receipt.status();
  live_.committed(commit);
  return n_bytes + receipt->bytes_written;
}

Result<std::int64_t> SessionState::commit_progress(const std::vector<TokenId>& new_tokens,
                                                   StateToStore state) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  Draft draft = this->draft();
  if (durability_ != SessionDurability::kSynced) draft.commit.durability = Durability::kBuffered;
  if (!new_tokens.empty()) {
    add_event(draft, TokensGenerated{said->open_turn->started.turn, new_tokens});
  }
  return write_with_state(draft, state);
}

Result<std::int64_t> SessionState::end_turn(const std::vector<TokenId>& new_tokens,
                                            EndReason reason, const engine::ParsedOutput& output,
                                            const Speed& speed) {
  const std::lock_guard lock(session_->mutex);
  CAIRN_ASSIGN_OR_RETURN(const Conversation* said, conversation());
  Draft draft = this->draft();
  const std::uint64_t turn = said->open_turn->started.turn;
  if (!new_tokens.empty()) add_event(draft, TokensGenerated{turn, new_tokens});
  TurnEnded ended;
  ended.turn = turn;
  ended.end_reason = reason;
  ended.n_tokens = static_cast<std::int64_t>(said->open_turn->tokens.size() + new_tokens.size());
  ended.message = answer(output);
  add_event(draft, std::move(ended));
  SessionRecord& record = draft.record;
  record.prefill_us_per_token =
      smoothed(record.prefill_us_per_token, static_cast<float>(speed.prefill_us_per_token));
  record.restore_us_per_mib =
      smoothed(record.restore_us_per_mib, static_cast<float>(speed.restore_us_per_mib));
  CAIRN_ASSIGN_OR_RETURN(const FoundTails found, store_->store().find_tails(record.id));
  const std::int64_t n_block_bytes =
      std::int64_t{record.stored_blocks} * model_->info().global_kv_bytes_per_block;
  draft.commit.expired_tails = expired_turn_tails(found.tails, said->messages, n_block_bytes);
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t bytes, write_with_state(draft, StateToStore::kEndTail));
  session_->running = false;  // not after an error: the turn is still to be interrupted
  return bytes;
}

void SessionState::note_live_use() { store_->live_memory().used(*this, live_.private_bytes()); }

// A turn's end has stored everything but for what the disk had no room for then. What it still has
// none for is computed again.
bool SessionState::put_away() noexcept {
  const std::unique_lock lock(session_->mutex, std::try_to_lock);
  if (!lock || session_->running) return false;
  try {
    Draft draft = this->draft();
    draft.commit.durability = Durability::kBuffered;
    if (live_is_of_head_ && live_.has_unstored_state()) {
      (void)write_with_state(draft, StateToStore::kTail);
    }
  } catch (...) {  // no memory to write: the more reason to free some
  }
  live_.release();
  return true;
}

void SessionState::count_without_state() {
  store_->store().counters().change([](StoreCounters& c) { ++c.commits_without_state; });
}

void SessionState::interrupt_turn() {
  const std::lock_guard lock(session_->mutex);
  session_->running = false;
}

}  // namespace cairn::session
