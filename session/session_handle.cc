#include "session/session_handle.h"

#include <utility>

namespace cairn::session {

SessionHandle::~SessionHandle() {
  if (!kept_) return;
  kept_->cancel();
  kept_->wait_until_finished();
}

// A kept turn has ended by now, or there would be no newer one.
void SessionHandle::set_turn(const std::shared_ptr<TurnState>& turn) {
  std::shared_ptr<TurnState> ended;
  const std::lock_guard lock(mutex_);
  turn_ = turn;
  ended = std::exchange(kept_, nullptr);
}

void SessionHandle::keep(std::shared_ptr<TurnState> turn) {
  const std::lock_guard lock(mutex_);
  if (turn_.lock() == turn) kept_ = std::move(turn);
}

std::shared_ptr<TurnState> SessionHandle::take_turn() {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<TurnState> turn = turn_.lock();
  kept_.reset();  // who takes it holds it from here on
  return turn;
}

}  // namespace cairn::session
