// The only file that includes zstd.
#include "session/compression.h"

#include <zstd.h>

namespace cairn::session {
namespace {

// Level 3: higher levels gain a few percent on chat text for several times the time.
constexpr int kLevel = 3;

}  // namespace

Result<std::string> compress(std::string_view bytes) {
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t n =
      ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(n)) {
    return Status(StatusCode::kOutOfMemory, std::string("compress: ") + ZSTD_getErrorName(n));
  }
  frame.resize(n);
  return frame;
}

Result<std::string> decompress(std::string_view frame, std::size_t n_bytes_max) {
  const unsigned long long n_content = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (n_content == ZSTD_CONTENTSIZE_ERROR || n_content == ZSTD_CONTENTSIZE_UNKNOWN) {
    return corrupt("decompress: not a zstd frame with a stated size");
  }
  if (n_content > n_bytes_max) {
    return corrupt("decompress: the frame states " + std::to_string(n_content) +
                   " bytes, at most " + std::to_string(n_bytes_max) + " are allowed");
  }
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
    return corrupt("decompress: the frame is cut or followed by other bytes");
  }
  std::string bytes(static_cast<std::size_t>(n_content), '\0');
  const std::size_t n = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(n)) return corrupt(std::string("decompress: ") + ZSTD_getErrorName(n));
  if (n != bytes.size()) return corrupt("decompress: fewer bytes than the frame states");
  return bytes;
}

}  // namespace cairn::session
