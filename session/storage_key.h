// Keys of the store and the integers in them (FORMAT.md section 2). Integers in keys are
// big-endian, so that keys sort as the numbers do; integers in values are little-endian.
#ifndef CAIRN_SESSION_STORAGE_KEY_H_
#define CAIRN_SESSION_STORAGE_KEY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "session/block_key.h"
#include "session/session_id.h"

namespace cairn::session {

// Meta family.
inline constexpr std::string_view kHeaderKey = "header";
inline constexpr std::string_view kCountersKey = "counters";
inline constexpr std::string_view kNamePrefix = "name/";
inline constexpr std::string_view kNamespacePrefix = "namespace/";
inline constexpr std::string_view kTailNumbersKey = "tails";
inline constexpr std::string_view kCommitKey = "commit";
inline constexpr std::string_view kIncidentPrefix = "incident/";
std::string name_key(std::string_view name);
std::string incident_key(std::int64_t time_ms);
std::string namespace_key(const BlockKey& root);

// Sessions family, and prefix of all keys of one session in the events and tail families.
std::string session_key(const SessionId& id);
// Empty unless `key` is exactly one session id.
std::optional<SessionId> parse_session_key(std::string_view key);

inline constexpr std::size_t kSessionKeyBytes = 16;

std::string event_key(const SessionId& id, std::uint64_t sequence);
// The sequence of an event key; empty if it has another length.
std::optional<std::uint64_t> parse_event_sequence(std::string_view key);
// Tail index, and tails of format 1.
std::string tail_key(const SessionId& id, std::uint64_t slot);
// Tails.
std::string tail_number_key(std::uint64_t number);

// Block index, and blocks.
std::string block_index_key(const BlockKey& key);
// Empty unless `key` is exactly one block key.
std::optional<BlockKey> parse_block_index_key(std::string_view key);
std::string block_number_key(std::uint32_t kv_namespace, std::uint64_t number);
// Namespace and number; empty if the key has another length.
std::optional<std::pair<std::uint32_t, std::uint64_t>> parse_block_number_key(std::string_view key);

void append_little_endian32(std::uint32_t value, std::string& out);
void append_little_endian64(std::uint64_t value, std::string& out);
// The views have at least 4 and 8 bytes.
std::uint32_t little_endian32(std::string_view bytes);
std::uint64_t little_endian64(std::string_view bytes);
std::string to_hex64(std::uint64_t value);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORAGE_KEY_H_
