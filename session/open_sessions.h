// Which sessions are open in this process, and their records: the one copy that everybody uses, so
// that renaming an open session and committing to it cannot undo each other.
#ifndef CAIRN_SESSION_OPEN_SESSIONS_H_
#define CAIRN_SESSION_OPEN_SESSIONS_H_

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "session/records.h"
#include "session/session_id.h"

namespace cairn::session {

struct OpenSession {
  std::mutex mutex;      // guards what follows
  SessionRecord record;  // as of the last commit
  bool running = false;  // a turn; nothing else writes the session's log
};

// Safe from any thread.
class OpenSessions {
 public:
  // False if it is open.
  bool add(const SessionId& id, const std::shared_ptr<OpenSession>& session) {
    const std::lock_guard lock(mutex_);
    return sessions_.emplace(id, session).second;
  }
  // Null if it is not open.
  std::shared_ptr<OpenSession> find(const SessionId& id) {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second;
  }
  void remove(const SessionId& id) {
    const std::lock_guard lock(mutex_);
    sessions_.erase(id);
  }
  std::set<SessionId> ids() {
    const std::lock_guard lock(mutex_);
    std::set<SessionId> ids;
    for (const auto& [id, session] : sessions_) ids.insert(id);
    return ids;
  }

 private:
  std::mutex mutex_;
  std::map<SessionId, std::shared_ptr<OpenSession>> sessions_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_OPEN_SESSIONS_H_
