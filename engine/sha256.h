// SHA-256 (FIPS 180-4) by OpenSSL.
#ifndef CAIRN_ENGINE_SHA256_H_
#define CAIRN_ENGINE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace cairn::engine {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Confined to one thread at a time. Throws std::bad_alloc where memory ends, as a container would.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  // The digest of everything so far; the object then starts over.
  Sha256Digest finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);

// Lower case, two digits a byte.
std::string hex(std::span<const std::uint8_t> bytes);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SHA256_H_
