#include "session/session_id.h"

#include <sys/random.h>

#include "engine/sha256.h"

namespace cairn::session {

std::string SessionId::to_hex() const { return engine::hex(bytes); }

Result<SessionId> random_session_id() {
  SessionId id;
  // Requests of up to 256 bytes are never cut short once the source is ready.
  if (getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size())) {
    return Status(StatusCode::kIoError, "session id: the system's random source failed");
  }
  return id;
}

}  // namespace cairn::session
