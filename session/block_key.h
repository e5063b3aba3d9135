// Names of KV blocks: a hash chain over everything that decides their content, so that equal
// prefixes of any two sessions have one name and different ones never meet.
#ifndef CAIRN_SESSION_BLOCK_KEY_H_
#define CAIRN_SESSION_BLOCK_KEY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "cairn/message.h"

namespace cairn::session {

inline constexpr std::uint32_t kKvFormatVersion = 1;  // FORMAT.md: KV payload and tail payload
inline constexpr int kBlockTokens = 128;  // one sliding window; every compression ratio divides it

// SHA-256. The key names a token prefix and how it was computed, never the bytes of the block.
using BlockKey = std::array<std::uint8_t, 32>;

// For unordered containers: keys are hashes already.
struct BlockKeyHash {
  std::size_t operator()(const BlockKey& key) const {
    std::size_t hash = 0;
    std::memcpy(&hash, key.data(), sizeof hash);
    return hash;
  }
};

// How the rows of a block were computed. Numbers are on disk.
enum class Provenance : std::uint8_t {
  kExact = 0,    // by an unbroken prefill or an exact continuation
  kBounded = 1,  // after a bounded replay, somewhere at or before this block
};

// What blocks must have in common to be interchangeable.
struct KvNamespace {
  std::string model_fingerprint;
  std::uint32_t kv_format_version = 0;  // layout of the payload
  std::string salt;                     // any bytes; sessions with different salts share nothing

  bool operator==(const KvNamespace&) const = default;
};

// The start of all chains of a namespace.
BlockKey root_key(const KvNamespace& kv_namespace);

// The key of the block of `tokens` that follows the prefix `parent`.
BlockKey block_key(const BlockKey& parent, Provenance provenance, std::span<const TokenId> tokens);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_BLOCK_KEY_H_
