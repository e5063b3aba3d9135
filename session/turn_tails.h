// Tails of the last turns: the states that hosts go back to. A turn stores one when its prompt is
// computed and one at its end (FORMAT.md section 5: each in the slot of the event it stands at);
// the head's tail is replaced by the next, these stay for a while. So an answer is taken again from
// its prompt's end, and a message is edited from the end of the turn before it, without a token
// computed twice.
#ifndef CAIRN_SESSION_TURN_TAILS_H_
#define CAIRN_SESSION_TURN_TAILS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/message.h"
#include "session/records.h"

namespace cairn::session {

// So many stay whatever they take, and so many at most.
inline constexpr std::size_t kTurnTailsMin = 8, kTurnTailsMax = 64;
// What they may take beyond that, where the session's blocks take less.
inline constexpr std::int64_t kTurnTailBytes = 32 << 20;

// Whether it is one of these: tails of marks stand before the event whose slot they are in.
bool is_turn_tail(const TailRecord& tail);

// The slots of the turn tails among `tails` to give up, when two more are about to be stored. Half
// of those that stay are the newest, whichever branch they are on; the others stand before or after
// a user's message of the conversation, the newest first: in between, an agent's turns answer
// results of its calls, which nobody edits. `n_block_bytes`: what the session's blocks take.
std::vector<std::uint64_t> expired_turn_tails(std::span<const TailRecord> tails,
                                              std::span<const Message> conversation,
                                              std::int64_t n_block_bytes);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TURN_TAILS_H_
