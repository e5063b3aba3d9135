// Which sessions are open in this process.
#ifndef CAIRN_SESSION_OPEN_SESSIONS_H_
#define CAIRN_SESSION_OPEN_SESSIONS_H_

#include <mutex>
#include <set>

#include "session/session_id.h"

namespace cairn::session {

// Safe from any thread.
class OpenSessions {
 public:
  // False if it is open.
  bool add(const SessionId& id) {
    const std::lock_guard lock(mutex_);
    return ids_.insert(id).second;
  }
  void remove(const SessionId& id) {
    const std::lock_guard lock(mutex_);
    ids_.erase(id);
  }
  std::set<SessionId> ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }

 private:
  std::mutex mutex_;
  std::set<SessionId> ids_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_OPEN_SESSIONS_H_
