#include "session/turn_limits.h"

#include <cstdint>
#include <string>

#include "engine/sampler.h"
#include "engine/stop_strings.h"

namespace cairn::session {
namespace {

Status check_at_least(const char* field, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return invalid_argument(std::string(field) + " is " + std::to_string(value) +
                          ", must be at least " + std::to_string(least));
}

}  // namespace

Status validate(const TurnLimits& limits) {
  CAIRN_RETURN_IF_ERROR(check_at_least("limits.reasoning_tokens", limits.reasoning_tokens, 0));
  CAIRN_RETURN_IF_ERROR(check_at_least("limits.context_tokens", limits.context_tokens, 0));
  CAIRN_RETURN_IF_ERROR(check_at_least("limits.tool_calls", limits.tool_calls, 0));
  CAIRN_RETURN_IF_ERROR(check_at_least("limits.time", limits.time.count(), 0));
  return engine::check_stop_strings(limits.stop);
}

Status validate(const TurnOptions& options) {
  CAIRN_RETURN_IF_ERROR(engine::validate(options.sampling));
  CAIRN_RETURN_IF_ERROR(check_at_least("max_tokens", options.max_tokens, 1));
  CAIRN_RETURN_IF_ERROR(validate(options.limits));
  if (options.priority >= TurnPriority::kInteractive &&
      options.priority <= TurnPriority::kBackground) {
    return {};
  }
  return invalid_argument("priority has no value " +
                          std::to_string(static_cast<int>(options.priority)));
}

}  // namespace cairn::session
