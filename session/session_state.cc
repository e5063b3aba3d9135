// Log and conversation. Every change is a commit first and a change in memory after it succeeded,
// so a failed write leaves the session as it was.
#include "session/session_state.h"

#include <algorithm>
#include <chrono>

#include "engine/chat_template.h"
#include "engine/sampler.h"
#include "session/block_key.h"

namespace cairn::session {
namespace {

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

KvNamespace namespace_of(const engine::LoadedModel& model, const StoreState& store) {
  return {model.info().fingerprint, kKvFormatVersion, store.store().kv_salt()};
}

Status check_options(const SessionOptions& options) {
  if (options.effort < 1 || options.effort > 100) {
    return invalid_argument("effort is " + std::to_string(options.effort) + ", must be 1 to 100");
  }
  if (options.restore != RestorePolicy::kExact && options.restore != RestorePolicy::kBounded) {
    return invalid_argument("restore policy has no value " +
                            std::to_string(static_cast<int>(options.restore)));
  }
  return {};
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

}  // namespace

SessionState::SessionState(std::shared_ptr<engine::LoadedModel> model,
                           std::shared_ptr<StoreState> store, SessionLease lease,
                           SessionRecord record, KvNamespace kv_namespace)
    : model_(std::move(model)),
      store_(std::move(store)),
      lease_(std::move(lease)),
      live_(model_, {&store_->store(), &store_->pages(), record.id, std::move(kv_namespace),
                     record.options.restore}),
      record_(std::move(record)) {
  store_->live_memory().add(*this);
}

SessionState::~SessionState() { store_->live_memory().remove(*this); }

Result<std::shared_ptr<SessionState>> SessionState::create(
    std::shared_ptr<engine::LoadedModel> model, std::shared_ptr<StoreState> store,
    const std::string& name, const SessionOptions& options) {
  CAIRN_RETURN_IF_ERROR(check_options(options));
  const KvNamespace kv_namespace = namespace_of(*model, *store);
  CAIRN_ASSIGN_OR_RETURN(const std::uint32_t number, store->store().open_namespace(kv_namespace));
  CAIRN_RETURN_IF_ERROR(
      store->store().create_session({name, model->info().fingerprint, options, number}).status());
  return open(std::move(model), std::move(store), name);
}

Result<std::shared_ptr<SessionState>> SessionState::open(std::shared_ptr<engine::LoadedModel> model,
                                                         std::shared_ptr<StoreState> store,
                                                         const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(SessionRecord record, store->store().find_by_name(name));
  if (record.model_fingerprint != model->info().fingerprint) {
    return Status(StatusCode::kModelMismatch,
                  "session '" + name + "' was made by model " +
                      record.model_fingerprint.substr(0, 12) + ", the open model is " +
                      model->info().fingerprint.substr(0, 12),
                  "open it with the checkpoint, tokenizer and numerics it was made with");
  }
  CAIRN_ASSIGN_OR_RETURN(SessionLease lease, store->store().lease(record.id));
  // Read again: the record may have changed until the lease was ours.
  CAIRN_ASSIGN_OR_RETURN(record, store->store().load_session(record.id));
  const KvNamespace kv_namespace = namespace_of(*model, *store);
  CAIRN_RETURN_IF_ERROR(store->store().open_namespace(kv_namespace).status());
  std::shared_ptr<SessionState> session(new SessionState(
      std::move(model), std::move(store), std::move(lease), std::move(record), kv_namespace));
  CAIRN_RETURN_IF_ERROR(session->load_log());
  return session;
}

Status SessionState::load_log() {
  return store_->store().visit_events(record_.id, 1, [&](LogEvent&& event) {
    apply(event.body);
    return true;
  });
}

void SessionState::apply(const EventBody& body) {
  if (const auto* appended = std::get_if<MessageAppended>(&body)) {
    messages_.push_back(appended->message);
  } else if (const auto* started = std::get_if<TurnStarted>(&body)) {
    open_turn_ = OpenTurn{*started, {}};
    n_turns_ = started->turn + 1;
  } else if (const auto* generated = std::get_if<TokensGenerated>(&body)) {
    if (!open_turn_) return;
    open_turn_->tokens.insert(open_turn_->tokens.end(), generated->tokens.begin(),
                              generated->tokens.end());
  } else if (const auto* ended = std::get_if<TurnEnded>(&body)) {
    // The log has the tokens once, in its TokensGenerated events.
    Message message = ended->message;
    if (open_turn_) message.sampled_tokens = std::move(open_turn_->tokens);
    messages_.push_back(std::move(message));
    open_turn_.reset();
  }
}

void SessionState::add_event(Commit& commit, EventBody body) {
  LogEvent& event = commit.events.emplace_back();
  event.sequence = record_.head_sequence + commit.events.size();
  event.parent = event.sequence - 1;
  event.time_ms = now_ms();
  event.body = std::move(body);
}

Result<CommitReceipt> SessionState::write(Commit& commit) {
  SessionRecord record = record_;
  record.head_sequence += commit.events.size();
  record.n_events += commit.events.size();
  record.used_ms = now_ms();
  for (const LogEvent& event : commit.events) {
    if (std::holds_alternative<TurnStarted>(event.body)) record.turn_open = true;
    if (std::holds_alternative<TurnEnded>(event.body)) record.turn_open = false;
    if (const auto* generated = std::get_if<TokensGenerated>(&event.body)) {
      record.head_tokens += static_cast<std::int64_t>(generated->tokens.size());
    }
    if (const auto* started = std::get_if<TurnStarted>(&event.body)) {
      record.head_tokens = started->n_prompt_tokens;
    }
  }
  if (!commit.blocks.empty()) {
    record.chain_key = commit.blocks.back().key;
    record.stored_blocks = commit.blocks.back().depth + 1;
  }
  commit.session = record.id;
  commit.kv_namespace = record.kv_namespace;
  commit.record = record;
  CAIRN_ASSIGN_OR_RETURN(CommitReceipt receipt, store_->store().commit(commit));
  record_ = std::move(record);
  for (const LogEvent& event : commit.events) apply(event.body);
  return receipt;
}

Status SessionState::check_not_running() const {
  if (!running_) return {};
  return {StatusCode::kBusy, "session '" + record_.name + "' runs a turn",
          "read the turn to its end or cancel it first"};
}

// What the format cannot say, or the model cannot read, is not logged.
Status SessionState::append(const Message& message) {
  std::lock_guard lock(mutex_);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  CAIRN_RETURN_IF_ERROR(engine::check_message(message));
  CAIRN_RETURN_IF_ERROR(check_no_image(message));
  CAIRN_RETURN_IF_ERROR(check_fits(message));
  Commit commit;
  if (open_turn_) add_event(commit, end_of_open_turn());
  add_event(commit, MessageAppended{message});
  return write(commit).status();
}

// The log only grows: a message that leaves no room for an answer would end the session for good.
Status SessionState::check_fits(const Message& message) const {
  std::vector<Message> after = messages_;
  if (open_turn_) {
    after.push_back(end_of_open_turn().message);
    after.back().sampled_tokens = open_turn_->tokens;
  }
  after.push_back(message);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, render(after));
  return check_room(static_cast<std::int64_t>(prompt.size()));
}

Status SessionState::check_room(std::int64_t n_prompt_tokens) const {
  if (n_prompt_tokens < model_->info().max_context) return {};
  return {StatusCode::kContextFull,
          "session '" + record_.name + "': the prompt would have " +
              std::to_string(n_prompt_tokens) + " tokens, the context holds " +
              std::to_string(model_->info().max_context),
          "shorten the message, or start a session with a shorter history"};
}

TurnEnded SessionState::end_of_open_turn() const {
  engine::OutputParser parser(model_->tokenizer(), parser_options(open_turn_->started.turn));
  std::vector<engine::OutputEvent> events;
  for (const TokenId token : open_turn_->tokens) parser.push(token, events);
  parser.finish(/*complete=*/false, events);
  TurnEnded ended;
  ended.turn = open_turn_->started.turn;
  ended.end_reason = EndReason::kCancelled;
  ended.n_tokens = static_cast<std::int64_t>(open_turn_->tokens.size());
  ended.message = answer(parser.output(), {});
  return ended;
}

std::vector<Message> SessionState::messages() const {
  std::lock_guard lock(mutex_);
  return messages_;
}

std::size_t SessionState::n_messages() const {
  std::lock_guard lock(mutex_);
  return messages_.size();
}

SessionInfo SessionState::info() const {
  std::lock_guard lock(mutex_);
  return session_info(record_);
}

Result<std::vector<TokenId>> SessionState::render(const std::vector<Message>& messages) const {
  engine::PromptOptions options;
  options.thinking = record_.options.thinking;
  options.effort = record_.options.effort;
  CAIRN_ASSIGN_OR_RETURN(
      const auto segments,
      engine::render_prompt(messages, options, model_->think_end(), model_->eos()));
  return engine::encode_prompt(segments, model_->tokenizer());
}

// The tokens that the last ended turn left behind: its prompt and its answer.
std::vector<TokenId> SessionState::known_tokens() const {
  const auto answer = std::find_if(messages_.rbegin(), messages_.rend(), [](const Message& m) {
    return m.role == Role::kAssistant && !m.sampled_tokens.empty();
  });
  if (answer == messages_.rend()) return {};
  Result<std::vector<TokenId>> prompt = render({messages_.begin(), std::prev(answer.base())});
  if (!prompt.ok()) return {};
  prompt->insert(prompt->end(), answer->sampled_tokens.begin(), answer->sampled_tokens.end());
  return std::move(*prompt);
}

engine::OutputParserOptions SessionState::parser_options(std::uint64_t turn) const {
  engine::OutputParserOptions options;
  options.starts_in_reasoning = record_.options.thinking;
  for (const Message& message : messages_) {
    if (message.role == Role::kSystem && !message.tools_json.empty()) {
      options.tools_json = message.tools_json;
    }
  }
  options.call_id_prefix =
      "call_" + record_.id.to_hex().substr(0, 8) + "_" + std::to_string(turn) + "_";
  return options;
}

Message SessionState::answer(const engine::ParsedOutput& output,
                             std::vector<TokenId> tokens) const {
  Message message;
  message.role = Role::kAssistant;
  if (!output.text.empty()) message.content.push_back({ContentBlock::Kind::kText, output.text, {}});
  message.reasoning = output.reasoning;
  message.tool_calls = output.tool_calls;
  message.sampled_tokens = std::move(tokens);
  return message;
}

Result<SessionState::TurnInput> SessionState::begin_turn(const TurnOptions& options) {
  std::lock_guard lock(mutex_);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  CAIRN_RETURN_IF_ERROR(engine::validate(options.sampling));
  if (options.max_tokens < 1) {
    return invalid_argument("max_tokens is " + std::to_string(options.max_tokens) +
                            ", must be at least 1");
  }
  if (open_turn_) {
    return invalid_argument("session '" + record_.name + "' has an interrupted turn",
                            "resume it, or append a message to keep what it said and go on");
  }
  if (messages_.empty() || messages_.back().role == Role::kAssistant ||
      messages_.back().role == Role::kLatestReminder) {
    return invalid_argument("session '" + record_.name + "' has nothing to answer",
                            "append a user message or a tool result first");
  }
  TurnInput input;
  CAIRN_ASSIGN_OR_RETURN(input.prompt, render(messages_));
  const auto n_prompt = static_cast<std::int64_t>(input.prompt.size());
  CAIRN_RETURN_IF_ERROR(check_room(n_prompt));
  input.known = known_tokens();
  input.turn.started = {n_turns_, options.sampling, options.max_tokens, n_prompt,
                        token_digest(input.prompt)};
  input.parser = parser_options(n_turns_);
  Commit commit;
  add_event(commit, input.turn.started);
  CAIRN_RETURN_IF_ERROR(write(commit).status());
  running_ = true;
  return input;
}

Result<SessionState::TurnInput> SessionState::resume_turn() {
  std::lock_guard lock(mutex_);
  CAIRN_RETURN_IF_ERROR(check_not_running());
  if (!open_turn_) {
    return Status(StatusCode::kNotFound, "session '" + record_.name + "' has no interrupted turn");
  }
  TurnInput input;
  CAIRN_ASSIGN_OR_RETURN(input.prompt, render(messages_));
  if (token_digest(input.prompt) != open_turn_->started.prompt_digest) {
    return internal_error("session '" + record_.name +
                          "': the interrupted turn's prompt renders differently than it did");
  }
  input.turn = *open_turn_;
  if (open_turn_->tokens.empty()) {  // perhaps stopped before its prompt was computed
    input.known = known_tokens();
  } else {
    input.known = input.prompt;
    input.known.insert(input.known.end(), open_turn_->tokens.begin(), open_turn_->tokens.end());
  }
  input.parser = parser_options(open_turn_->started.turn);
  running_ = true;
  return input;
}

Result<std::int64_t> SessionState::write_surplus_blocks() {
  std::int64_t n_bytes = 0;
  while (live_.n_new_blocks() > static_cast<std::int64_t>(kCommitBlocks)) {
    Commit commit;
    commit.durability = Durability::kBuffered;
    LiveSequence::Payloads payloads;
    live_.add_blocks(commit, payloads);
    CAIRN_ASSIGN_OR_RETURN(const CommitReceipt receipt, write(commit));
    live_.committed(commit);
    n_bytes += receipt.bytes_written;
  }
  return n_bytes;
}

Result<std::int64_t> SessionState::write_with_state(Commit& commit, StateToStore state) {
  LiveSequence::Payloads payloads;
  std::int64_t n_bytes = 0;
  if (state != StateToStore::kNothing) {
    const Result<std::int64_t> surplus = write_surplus_blocks();
    if (surplus.ok()) {
      n_bytes = *surplus;
      live_.add_blocks(commit, payloads);
      if (state == StateToStore::kTail && live_.ready()) {
        live_.add_tail(commit, record_.head_sequence + commit.events.size(), payloads);
      }
    } else if (surplus.status().code() != StatusCode::kOutOfDisk) {
      return surplus.status();
    }
  }
  if (commit.events.empty() && commit.blocks.empty() && !commit.tail) return n_bytes;
  Result<CommitReceipt> receipt = write(commit);
  if (receipt.status().code() == StatusCode::kOutOfDisk &&
      (!commit.blocks.empty() || commit.tail)) {
    commit.blocks.clear();
    commit.tail.reset();
    if (commit.events.empty()) return n_bytes;  // nothing lost but a later restore's time
    receipt = write(commit);
  }
  if (!receipt.ok()) return receipt.status();
  live_.committed(commit);
  return n_bytes + receipt->bytes_written;
}

Result<std::int64_t> SessionState::commit_progress(const std::vector<TokenId>& new_tokens,
                                                   StateToStore state) {
  std::lock_guard lock(mutex_);
  Commit commit;
  commit.durability = Durability::kBuffered;
  if (!new_tokens.empty()) {
    add_event(commit, TokensGenerated{open_turn_->started.turn, new_tokens});
  }
  return write_with_state(commit, state);
}

Result<std::int64_t> SessionState::end_turn(const std::vector<TokenId>& new_tokens,
                                            EndReason reason, const engine::ParsedOutput& output) {
  std::lock_guard lock(mutex_);
  Commit commit;
  const std::uint64_t turn = open_turn_->started.turn;
  if (!new_tokens.empty()) add_event(commit, TokensGenerated{turn, new_tokens});
  TurnEnded ended;
  ended.turn = turn;
  ended.end_reason = reason;
  ended.n_tokens = static_cast<std::int64_t>(open_turn_->tokens.size() + new_tokens.size());
  ended.message = answer(output, {});
  add_event(commit, std::move(ended));
  CAIRN_ASSIGN_OR_RETURN(const std::int64_t bytes, write_with_state(commit, StateToStore::kTail));
  running_ = false;  // not after an error: the turn is still to be interrupted
  return bytes;
}

void SessionState::note_live_use() { store_->live_memory().used(*this, live_.private_bytes()); }

// A turn's end has stored everything but for what the disk had no room for then. What it still has
// none for is computed again.
bool SessionState::put_away() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || running_) return false;
  try {
    Commit commit;
    commit.durability = Durability::kBuffered;
    if (live_.has_unstored_state()) (void)write_with_state(commit, StateToStore::kTail);
  } catch (...) {  // no memory to write: the more reason to free some
  }
  live_.release();
  return true;
}

void SessionState::interrupt_turn() {
  std::lock_guard lock(mutex_);
  running_ = false;
}

}  // namespace cairn::session
