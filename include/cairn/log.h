// The host's log sink. Without one the library says nothing; it never writes to stdout or stderr.
#ifndef CAIRN_LOG_H_
#define CAIRN_LOG_H_

#include <cstdint>
#include <functional>
#include <string_view>

namespace cairn {

enum class LogLevel : std::int32_t { kTrace = 0, kDebug = 1, kInfo = 2, kWarn = 3, kError = 4 };

// Called from any thread, one call at a time. Must not call back into Cairn. `text` is one line
// without a newline, borrowed for the duration of the call.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

}  // namespace cairn

#endif  // CAIRN_LOG_H_
