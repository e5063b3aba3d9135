// The cryptography of encrypted stores, by OpenSSL: XAES-256-GCM for values, HMAC-SHA256 for
// sub-keys and hidden names, scrypt for passphrases. No formats here; FORMAT.md section 8 has them.
#ifndef CAIRN_SESSION_CIPHER_H_
#define CAIRN_SESSION_CIPHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cairn/status.h"

namespace cairn::session {

// 32 secret bytes, wiped when they go.
class SecretKey {
 public:
  SecretKey() = default;
  SecretKey(SecretKey&& other) noexcept;
  SecretKey& operator=(SecretKey&& other) noexcept;
  ~SecretKey();

  std::array<std::uint8_t, 32>& bytes() { return bytes_; }
  const std::array<std::uint8_t, 32>& bytes() const { return bytes_; }

 private:
  std::array<std::uint8_t, 32> bytes_{};
};

// All that follows fails with kOutOfMemory, or with kIoError where the system's random source does.

Status fill_random(std::span<std::uint8_t> out);
Result<SecretKey> random_key();

// HKDF-Expand (RFC 5869) of a uniformly random key: another key for each label.
Result<SecretKey> derive_key(const SecretKey& key, std::string_view label);

Result<std::array<std::uint8_t, 32>> hmac_sha256(const SecretKey& key, std::string_view bytes);

struct ScryptCost {
  std::uint32_t log2_n = 17, r = 8, p = 1;  // 128 MiB and about 0.5 s

  bool operator==(const ScryptCost&) const = default;
};
// scrypt (RFC 7914). kUnsupported where the cost is out of bounds: it is read from files, and must
// not take the machine's memory. At most 512 MiB are used.
Result<SecretKey> stretch(std::string_view passphrase, std::span<const std::uint8_t> salt,
                          const ScryptCost& cost);

inline constexpr std::size_t kNonceBytes = 24, kTagBytes = 16;
using Nonce = std::array<std::uint8_t, kNonceBytes>;

// XAES-256-GCM (C2SP): AES-256-GCM under a key that AES-CMAC derives from the first half of a
// nonce of 192 random bits; the other half is GCM's nonce. Const methods are safe from any thread.
class Cipher {
 public:
  static Result<Cipher> create(const SecretKey& key);
  Cipher(Cipher&&) noexcept;
  Cipher& operator=(Cipher&&) noexcept;
  ~Cipher();

  // Encrypts `head` and `body` after each other into `out`, which has room for both and the tag at
  // its end. `context` is not stored but must be the same in `open`.
  Status seal(const Nonce& nonce, std::string_view context, std::string_view head,
              std::span<const std::byte> body, std::byte* out) const;
  // Decrypts into `out`, which has room for `sealed` less the tag and may be where `sealed` begins.
  // kCorrupt, and nothing of use in `out`, where tag, nonce, context or key are others.
  Status open(const Nonce& nonce, std::string_view context, std::span<const std::byte> sealed,
              std::byte* out) const;

 private:
  struct State;
  explicit Cipher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_CIPHER_H_
