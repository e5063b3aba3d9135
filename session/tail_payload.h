// The payload of a tail: the state of a sequence that is not in blocks (FORMAT.md "Tail payload").
#ifndef CAIRN_SESSION_TAIL_PAYLOAD_H_
#define CAIRN_SESSION_TAIL_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/message.h"
#include "session/block_key.h"

namespace cairn::session {

struct TailPayload {
  std::int64_t first_bounded = -1;   // blocks from here on are of bounded provenance; -1 = none
  std::span<const TokenId> tokens;   // after the last whole block
  std::span<const std::byte> state;  // as Sequence::export_tail
};

std::vector<std::byte> encode_tail(const TailPayload& tail);

// Empty if the bytes are not a tail whose open block is `tokens`. The result borrows both.
std::optional<TailPayload> decode_tail(std::span<const std::byte> payload,
                                       std::span<const TokenId> tokens);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TAIL_PAYLOAD_H_
