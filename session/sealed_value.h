// How every value of the store is wrapped: a schema version, a checksum, the content.
//
// Two shapes (FORMAT.md section 3). A *record* is a small message, compressed where that pays. A
// *payload* is a small descriptor followed by many opaque bytes that are never copied or
// compressed. In both, the checksum also covers the key and the family, so a value that turns up
// under another key does not check.
#ifndef CAIRN_SESSION_SEALED_VALUE_H_
#define CAIRN_SESSION_SEALED_VALUE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "cairn/status.h"
#include "session/storage.h"

namespace cairn::session {

inline constexpr std::size_t kRecordBytesMax = 64 << 20;  // of one record's content, uncompressed

// The value to store under `key`. Fails with kInvalidArgument above kRecordBytesMax.
Result<std::string> seal_record(Family family, std::string_view key, std::string_view content);

// Adds the record to `batch`. Fails likewise.
Status put_record(Family family, const std::string& key, std::string_view content,
                  WriteBatch& batch);

// The content of a record. kCorrupt where the checksum or the frame is wrong, kUnsupported where
// they are right and the schema is of a later version.
Result<std::string> unseal_record(Family family, std::string_view key, std::string_view value);

// The bytes to store before `payload`.
std::string seal_payload(Family family, std::string_view key, std::string_view descriptor,
                         std::span<const std::byte> payload);

struct PayloadView {
  std::string_view descriptor, payload;  // into the value
};
// Fails like unseal_record.
Result<PayloadView> unseal_payload(Family family, std::string_view key, std::string_view value);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SEALED_VALUE_H_
