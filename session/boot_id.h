// Which start of the machine this is.
#ifndef CAIRN_SESSION_BOOT_ID_H_
#define CAIRN_SESSION_BOOT_ID_H_

#include <array>
#include <cstdint>

namespace cairn::session {

using BootId = std::array<std::uint8_t, 16>;

// Another after each start; zeros where the system does not tell.
BootId boot_id();

}  // namespace cairn::session

#endif  // CAIRN_SESSION_BOOT_ID_H_
