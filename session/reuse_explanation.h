// Why a turn did not reuse more of its prompt.
#ifndef CAIRN_SESSION_REUSE_EXPLANATION_H_
#define CAIRN_SESSION_REUSE_EXPLANATION_H_

#include <cstdint>

#include "session/session_state.h"

namespace cairn::session {

// Completes the report of a restore, or of the plan of one, with causes that only the session's log
// knows. `n_blocks_found`: how many blocks of the prompt could be had.
void explain_reuse(const SessionState::TurnInput& input, std::int64_t n_blocks_found,
                   ReuseReport& report);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_REUSE_EXPLANATION_H_
