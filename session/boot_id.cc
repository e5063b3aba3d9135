#include "session/boot_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

#include "session/file_descriptor.h"

namespace cairn::session {

BootId boot_id() {
  BootId id{};
  const FileDescriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  if (!file.ok() || ::read(file.get(), text.data(), text.size() - 1) <= 0) return id;
  std::size_t n_digits = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (n_digits == 2 * id.size()) return {};
    std::uint8_t& byte = id[n_digits++ / 2];
    byte = static_cast<std::uint8_t>(byte << 4 | digit);
  }
  return n_digits == 2 * id.size() ? id : BootId{};
}

}  // namespace cairn::session
