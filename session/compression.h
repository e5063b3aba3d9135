// Lossless compression of small records: log events and metadata. KV payloads do not shrink.
#ifndef CAIRN_SESSION_COMPRESSION_H_
#define CAIRN_SESSION_COMPRESSION_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "cairn/status.h"

namespace cairn::session {

// One zstd frame (RFC 8878) that states its content size. Safe from any thread. Fails with
// kOutOfMemory.
Result<std::string> compress(std::string_view bytes);

// The content of `frame`, which must be exactly one whole zstd frame with a stated content size of
// at most `n_bytes_max`: a damaged or hostile frame costs no more memory than that. kCorrupt
// otherwise. zstd's own checksum is not used: records carry one over the compressed bytes.
Result<std::string> decompress(std::string_view frame, std::size_t n_bytes_max);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_COMPRESSION_H_
