#include "session/tail_payload.h"

#include <algorithm>
#include <cstring>

namespace cairn::session {
namespace {

// What stands before the open tokens; the sequence's own bytes follow those.
struct Header {
  std::uint32_t version = kKvFormatVersion;
  std::uint32_t n_tokens = 0;
  std::int64_t first_bounded = -1;
};

}  // namespace

std::vector<std::byte> encode_tail(const TailPayload& tail) {
  const Header header = {.n_tokens = static_cast<std::uint32_t>(tail.tokens.size()),
                         .first_bounded = tail.first_bounded};
  std::vector<std::byte> out(sizeof header + tail.tokens.size_bytes() + tail.state.size());
  std::byte* at = out.data();
  const auto put = [&](const void* bytes, std::size_t n) {
    if (n > 0) std::memcpy(at, bytes, n);
    at += n;
  };
  put(&header, sizeof header);
  put(tail.tokens.data(), tail.tokens.size_bytes());
  put(tail.state.data(), tail.state.size());
  return out;
}

std::optional<TailPayload> decode_tail(std::span<const std::byte> payload,
                                       std::span<const TokenId> tokens) {
  Header header;
  if (payload.size() < sizeof header + tokens.size_bytes()) return std::nullopt;
  std::memcpy(&header, payload.data(), sizeof header);
  payload = payload.subspan(sizeof header);
  if (header.version != kKvFormatVersion || header.n_tokens != tokens.size() ||
      !std::ranges::equal(payload.first(tokens.size_bytes()), std::as_bytes(tokens))) {
    return std::nullopt;
  }
  return TailPayload{header.first_bounded, tokens, payload.subspan(tokens.size_bytes())};
}

}  // namespace cairn::session
