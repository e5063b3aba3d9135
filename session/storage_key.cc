#include "session/storage_key.h"

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <span>

namespace cairn::session {
namespace {

template <std::unsigned_integral Number>
void append_big_endian(Number value, std::string& out) {
  for (int shift = 8 * (static_cast<int>(sizeof value) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(value >> shift));
  }
}

template <std::unsigned_integral Number>
void append_little_endian(Number value, std::string& out) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

template <std::unsigned_integral Number>
Number little_endian(std::string_view bytes) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

std::string string_of(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

constexpr std::size_t kEventKeyBytes = kSessionKeyBytes + 8, kBlockNumberKeyBytes = 12;

template <std::unsigned_integral Number>
Number big_endian(std::string_view bytes) {
  Number value = 0;
  for (const char byte : bytes.substr(0, sizeof value)) {
    value = static_cast<Number>(value << 8 | static_cast<unsigned char>(byte));
  }
  return value;
}

}  // namespace

std::string name_key(std::string_view name) { return std::string(kNamePrefix).append(name); }

std::string incident_key(std::int64_t time_ms) {
  return std::string(kIncidentPrefix) + to_hex64(static_cast<std::uint64_t>(time_ms));
}

std::string namespace_key(const BlockKey& root) {
  return std::string(kNamespacePrefix) + string_of(root);
}

std::string session_key(const SessionId& id) { return string_of(id.bytes); }

std::optional<SessionId> parse_session_key(std::string_view key) {
  if (key.size() != kSessionKeyBytes) return std::nullopt;
  SessionId id;
  std::copy(key.begin(), key.end(), id.bytes.begin());
  return id;
}

std::string event_key(const SessionId& id, std::uint64_t sequence) {
  std::string key = session_key(id);
  append_big_endian(sequence, key);
  return key;
}

std::optional<std::uint64_t> parse_event_sequence(std::string_view key) {
  if (key.size() != kEventKeyBytes) return std::nullopt;
  return big_endian<std::uint64_t>(key.substr(kSessionKeyBytes));
}

std::string tail_key(const SessionId& id, std::uint64_t slot) { return event_key(id, slot); }

std::string tail_number_key(std::uint64_t number) {
  std::string key;
  append_big_endian(number, key);
  return key;
}

std::string block_index_key(const BlockKey& key) { return string_of(key); }

std::optional<BlockKey> parse_block_index_key(std::string_view key) {
  BlockKey block{};
  if (key.size() != block.size()) return std::nullopt;
  std::copy(key.begin(), key.end(), block.begin());
  return block;
}

std::string block_number_key(std::uint32_t kv_namespace, std::uint64_t number) {
  std::string key;
  append_big_endian(kv_namespace, key);
  append_big_endian(number, key);
  return key;
}

std::optional<std::pair<std::uint32_t, std::uint64_t>> parse_block_number_key(
    std::string_view key) {
  if (key.size() != kBlockNumberKeyBytes) return std::nullopt;
  return std::pair(big_endian<std::uint32_t>(key), big_endian<std::uint64_t>(key.substr(4)));
}

void append_little_endian32(std::uint32_t value, std::string& out) {
  append_little_endian(value, out);
}
void append_little_endian64(std::uint64_t value, std::string& out) {
  append_little_endian(value, out);
}
std::uint32_t little_endian32(std::string_view bytes) {
  return little_endian<std::uint32_t>(bytes);
}
std::uint64_t little_endian64(std::string_view bytes) {
  return little_endian<std::uint64_t>(bytes);
}

std::string to_hex64(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace cairn::session
