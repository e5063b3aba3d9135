// Where the library's log lines go: the host's sink, or nowhere.
#ifndef CAIRN_ENGINE_LOGGER_H_
#define CAIRN_ENGINE_LOGGER_H_

#include <memory>
#include <string_view>

#include "cairn/log.h"

namespace cairn::engine {

// Safe from any thread; the sink is called by one thread at a time.
class Logger {
 public:
  Logger(LogSink sink, LogLevel level);
  ~Logger();
  void log(LogLevel level, std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null without a sink
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_LOGGER_H_
