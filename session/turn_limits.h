// What a turn's options may say, apart from how it samples.
#ifndef CAIRN_SESSION_TURN_LIMITS_H_
#define CAIRN_SESSION_TURN_LIMITS_H_

#include "cairn/session.h"
#include "cairn/status.h"

namespace cairn::session {

// kInvalidArgument names the field.
Status validate(const TurnLimits& limits);
// All of it: sampling, limits, priority.
Status validate(const TurnOptions& options);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_TURN_LIMITS_H_
