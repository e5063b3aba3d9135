// What the copies of a public Session share: the session, and its turn while no reader holds it.
#ifndef CAIRN_SESSION_SESSION_HANDLE_H_
#define CAIRN_SESSION_SESSION_HANDLE_H_

#include <memory>
#include <mutex>

#include "session/session_state.h"
#include "session/turn_state.h"

namespace cairn::session {

// Safe from any thread. The last copy to go stops the turn that was given up and waits for its
// step, so that the owner's thread destroys the session and never the strand.
class SessionHandle {
 public:
  explicit SessionHandle(std::shared_ptr<SessionState> state) : state_(std::move(state)) {}
  SessionHandle(const SessionHandle&) = delete;
  SessionHandle& operator=(const SessionHandle&) = delete;
  ~SessionHandle();

  const std::shared_ptr<SessionState>& state() const { return state_; }

  // The session's newest turn, which its first reader holds.
  void set_turn(const std::shared_ptr<TurnState>& turn);
  // It was given up by its reader; ignored if there is a newer one.
  void keep(std::shared_ptr<TurnState> turn);
  // For a new reader to hold; null: there is none.
  std::shared_ptr<TurnState> take_turn();

 private:
  const std::shared_ptr<SessionState> state_;
  std::mutex mutex_;
  std::weak_ptr<TurnState> turn_;
  std::shared_ptr<TurnState> kept_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_HANDLE_H_
