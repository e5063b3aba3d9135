// The public Session and Turn: policy is in session_state.cc, running in turn_state.cc.
#include "cairn/session.h"

#include "engine/chat_message.h"
#include "session/session_state.h"
#include "session/turn_state.h"

namespace cairn {

Result<Session> Session::create(const Model& model, const Store& store, const std::string& name,
                                const SessionOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(
      auto state, session::SessionState::create(model.state(), store.state(), name, options));
  return Session(std::move(state));
}

Result<Session> Session::open(const Model& model, const Store& store, const std::string& name,
                              const OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto state,
                         session::SessionState::open(model.state(), store.state(), name, options));
  return Session(std::move(state));
}

Status Session::append(const Message& message) { return state_->append(message); }

Status Session::append_json(std::string_view json) {
  const std::size_t index = state_->has_messages() ? 1 : 0;  // only the first place differs
  CAIRN_ASSIGN_OR_RETURN(const Message message, engine::parse_message(json, index));
  return state_->append(message);
}

Result<Turn> Session::start_turn(const TurnOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto input, state_->begin_turn(options));
  CAIRN_ASSIGN_OR_RETURN(auto turn, session::TurnState::start(state_, std::move(input)));
  return Turn(std::move(turn));
}

Result<Turn> Session::resume_turn() {
  CAIRN_ASSIGN_OR_RETURN(auto input, state_->resume_turn());
  CAIRN_ASSIGN_OR_RETURN(auto turn, session::TurnState::start(state_, std::move(input)));
  return Turn(std::move(turn));
}

Result<std::vector<Message>> Session::messages() const { return state_->messages(); }

Result<SyncReport> Session::sync(const std::vector<Message>& messages,
                                 const SyncOptions& options) {
  return state_->sync(messages, options);
}

Result<TurnPlan> Session::plan(const TurnOptions& options) const { return state_->plan(options); }

Result<TurnPlan> Session::plan_sync(const std::vector<Message>& messages,
                                    const TurnOptions& options,
                                    const SyncOptions& sync_options) const {
  return state_->plan_sync(messages, options, sync_options);
}

Result<std::int64_t> Session::count_tokens(const std::vector<Message>& more,
                                           const TurnOptions& options) const {
  return state_->count_tokens(more, options);
}

Result<std::uint64_t> Session::mark(const std::string& name, bool keep_state) {
  return state_->mark(name, keep_state);
}

Result<std::vector<Mark>> Session::marks() const { return state_->marks(); }

Status Session::rewind(std::uint64_t event) { return state_->rewind(event); }

Result<Session> Session::fork(const std::string& name, std::uint64_t event) const {
  CAIRN_RETURN_IF_ERROR(state_->fork(name, event).status());
  CAIRN_ASSIGN_OR_RETURN(auto state,
                         session::SessionState::open(state_->model(), state_->store(), name, {}));
  return Session(std::move(state));
}

SessionInfo Session::info() const { return state_->info(); }

namespace {

void finish(const std::shared_ptr<session::TurnState>& turn) {
  if (!turn) return;
  turn->cancel();
  turn->wait_until_finished();
}

}  // namespace

Turn::Turn(std::shared_ptr<session::TurnState> state) : state_(std::move(state)) {}

Turn& Turn::operator=(Turn&& other) noexcept {
  if (this != &other) {
    finish(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

Turn::~Turn() { finish(state_); }

Result<Event> Turn::next(std::chrono::milliseconds timeout) { return state_->next(timeout); }

void Turn::cancel() { state_->cancel(); }

Status Turn::end_thinking() { return state_->end_thinking(); }

int Turn::wake_fd() const { return state_->wake_fd(); }

}  // namespace cairn
