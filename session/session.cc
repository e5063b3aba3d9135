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
                              const OpenOptions& /*options*/) {
  CAIRN_ASSIGN_OR_RETURN(auto state,
                         session::SessionState::open(model.state(), store.state(), name));
  return Session(std::move(state));
}

Status Session::append(const Message& message) { return state_->append(message); }

Status Session::append_json(std::string_view json) {
  const std::size_t index = state_->n_messages();
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

int Turn::wake_fd() const { return state_->wake_fd(); }

}  // namespace cairn
