// Every field is hashed with its length before it, and every hash begins with a tag, so that no two
// different lists of fields give one byte string. Integers are little-endian (FORMAT.md section 5).
#include "session/block_key.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "engine/sha256.h"

namespace cairn::session {
namespace {

class FieldHash {
 public:
  explicit FieldHash(std::string_view tag) { field(tag); }

  FieldHash& field(std::span<const std::byte> bytes) {
    number(bytes.size());
    hash_.update(bytes);
    return *this;
  }
  FieldHash& field(std::string_view text) {
    return field(std::as_bytes(std::span(text.data(), text.size())));
  }
  FieldHash& field(std::uint32_t value) {
    number(sizeof value);
    number(value);
    return *this;
  }
  BlockKey finish() { return hash_.finish(); }

 private:
  void number(std::size_t value) {
    std::byte bytes[4];
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
    hash_.update(bytes);
  }

  engine::Sha256 hash_;
};

std::vector<std::byte> little_endian(std::span<const TokenId> tokens) {
  std::vector<std::byte> bytes;
  bytes.reserve(4 * tokens.size());
  for (const TokenId token : tokens) {
    const auto value = static_cast<std::uint32_t>(token);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  return bytes;
}

}  // namespace

BlockKey root_key(const KvNamespace& kv_namespace) {
  return FieldHash("root")
      .field(kv_namespace.model_fingerprint)
      .field(kv_namespace.kv_format_version)
      .field(kv_namespace.salt)
      .finish();
}

BlockKey block_key(const BlockKey& parent, Provenance provenance, std::span<const TokenId> tokens) {
  return FieldHash("block")
      .field(std::as_bytes(std::span(parent)))
      .field(static_cast<std::uint32_t>(provenance))
      .field(static_cast<std::uint32_t>(tokens.size()))
      .field(little_endian(tokens))
      .finish();
}

}  // namespace cairn::session
