// The identity of a session: 16 random bytes, written as 32 hexadecimal digits.
#ifndef CAIRN_SESSION_SESSION_ID_H_
#define CAIRN_SESSION_SESSION_ID_H_

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "cairn/status.h"

namespace cairn::session {

struct SessionId {
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const SessionId&) const = default;
  std::string to_hex() const;
};

// From the system's random source. Fails with kIoError.
Result<SessionId> random_session_id();

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_ID_H_
