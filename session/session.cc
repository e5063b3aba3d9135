// The public Session and Turn: policy is in session_state.cc, running in turn_state.cc.
#include "cairn/session.h"

#include "engine/chat_message.h"
#include "session/session_handle.h"
#include "session/session_state.h"
#include "session/turn_state.h"

namespace cairn {

namespace {

Result<Turn> run(const std::shared_ptr<session::SessionHandle>& handle,
                 session::SessionState::TurnInput input, std::uint64_t after) {
  CAIRN_ASSIGN_OR_RETURN(auto turn,
                         session::TurnState::start(handle->state(), std::move(input), after));
  handle->set_turn(turn);
  return Turn(std::move(turn), handle);
}

}  // namespace

Session::Session(std::shared_ptr<session::SessionState> state)
    : handle_(std::make_shared<session::SessionHandle>(std::move(state))) {}

const std::shared_ptr<session::SessionState>& Session::state() const { return handle_->state(); }

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

Status Session::append(const Message& message) { return state()->append(message); }

Status Session::append_json(std::string_view json) {
  const std::size_t index = state()->has_messages() ? 1 : 0;  // only the first place differs
  CAIRN_ASSIGN_OR_RETURN(const Message message, engine::parse_message(json, index));
  return state()->append(message);
}

Result<Turn> Session::start_turn(const TurnOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto input, state()->begin_turn(options));
  return run(handle_, std::move(input), 0);
}

Result<Turn> Session::resume_turn(std::uint64_t after) {
  CAIRN_ASSIGN_OR_RETURN(auto input, state()->resume_turn());
  return run(handle_, std::move(input), after);
}

Result<Turn> Session::attach_turn(std::uint64_t after) {
  std::shared_ptr<session::TurnState> turn = handle_->take_turn();
  if (!turn) {
    CAIRN_ASSIGN_OR_RETURN(auto ended, state()->ended_turn());
    CAIRN_ASSIGN_OR_RETURN(turn, session::TurnState::ended(state(), std::move(ended), after));
    handle_->set_turn(turn);
    return Turn(std::move(turn), handle_);
  }
  try {
    turn->stream().attach(after);
  } catch (...) {  // out of memory: the next who comes may have more
    handle_->keep(std::move(turn));
    throw;
  }
  return Turn(std::move(turn), handle_);
}

Result<std::vector<Message>> Session::messages() const { return state()->messages(); }

Result<SyncReport> Session::sync(const std::vector<Message>& messages, const SyncOptions& options) {
  return state()->sync(messages, options);
}

Result<TurnPlan> Session::plan(const TurnOptions& options) const { return state()->plan(options); }

Result<TurnPlan> Session::plan_sync(const std::vector<Message>& messages,
                                    const TurnOptions& options,
                                    const SyncOptions& sync_options) const {
  return state()->plan_sync(messages, options, sync_options);
}

Result<std::int64_t> Session::count_tokens(const std::vector<Message>& more,
                                           const TurnOptions& options) const {
  return state()->count_tokens(more, options);
}

Result<std::uint64_t> Session::mark(const std::string& name, bool keep_state) {
  return state()->mark(name, keep_state);
}

Result<std::vector<Mark>> Session::marks() const { return state()->marks(); }

Status Session::rewind(std::uint64_t event) { return state()->rewind(event); }

Result<Session> Session::fork(const std::string& name, std::uint64_t event) const {
  CAIRN_RETURN_IF_ERROR(state()->fork(name, event).status());
  CAIRN_ASSIGN_OR_RETURN(auto state,
                         session::SessionState::open(state()->model(), state()->store(), name, {}));
  return Session(std::move(state));
}

SessionInfo Session::info() const { return state()->info(); }

// -- Turn --

Turn::Turn(std::shared_ptr<session::TurnState> state, std::weak_ptr<session::SessionHandle> session)
    : state_(std::move(state)), session_(std::move(session)), reader_(state_->stream().reader()) {}

Turn& Turn::operator=(Turn&& other) noexcept {
  if (this != &other) {
    finish();
    state_ = std::move(other.state_);
    session_ = std::move(other.session_);
    reader_ = other.reader_;
  }
  return *this;
}

Turn::~Turn() { finish(); }

void Turn::finish() noexcept {
  if (!state_ || state_->stream().reader() != reader_) return;
  state_->cancel();
  state_->wait_until_finished();
}

Result<Event> Turn::next(std::chrono::milliseconds timeout) {
  return state_->stream().next(reader_, timeout);
}

EventRange Turn::events() { return EventRange(*this); }

void Turn::acknowledge(std::uint64_t sequence) { state_->stream().acknowledge(sequence); }

void Turn::detach() {
  if (!state_->stream().detach(reader_)) return;
  if (const auto session = session_.lock()) {
    session->keep(state_);
  } else {
    state_->cancel();
    state_->wait_until_finished();
  }
}

void Turn::cancel() { state_->cancel(); }

Status Turn::end_thinking() { return state_->end_thinking(); }

int Turn::wake_fd() const { return state_->stream().wake_fd(); }

void EventRange::advance() {
  at_end_ = failed_ || (begun_ && event_.kind == EventKind::kTurnEnd);
  begun_ = true;
  if (at_end_) return;
  Result<Event> next = turn_->next();
  failed_ = !next.ok();
  at_end_ = next.status().code() == StatusCode::kNotFound;
  event_ = next.ok() ? std::move(*next) : Event{};
  if (!failed_ || at_end_) return;
  event_.kind = EventKind::kTurnEnd;
  event_.end_reason = EndReason::kError;
  event_.status = next.status();
}

}  // namespace cairn
