// JSON compared by meaning: key order, spacing, escapes and the spelling of numbers are a client's
// habit.
#ifndef CAIRN_SESSION_CANONICAL_JSON_H_
#define CAIRN_SESSION_CANONICAL_JSON_H_

#include <string>
#include <string_view>

#include "engine/python_json.h"

namespace cairn::session {

// One spelling for values that a client may write in many: keys sorted, no spacing, 1.0 and 1e0 as
// 1. Numbers that a double cannot hold keep their digits.
std::string canonical_json(const engine::JsonValue& value);
// Text that is no JSON is returned as it is.
std::string canonical_json(std::string_view json);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_CANONICAL_JSON_H_
