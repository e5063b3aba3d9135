// The only file that includes spdlog: levels, filtering and serialisation come from it, the output
// goes to the host.
#include "engine/logger.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <mutex>

namespace cairn::engine {
namespace {

class HostSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit HostSink(LogSink sink) : sink_(std::move(sink)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    sink_(static_cast<LogLevel>(message.level), {message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

  LogSink sink_;
};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  return static_cast<spdlog::level::level_enum>(level);  // the same five numbers
}

}  // namespace

struct Logger::Impl {
  spdlog::logger logger;
};

Logger::Logger(LogSink sink, LogLevel level) {
  if (!sink) return;
  impl_ = std::make_unique<Impl>(
      Impl{spdlog::logger("cairn", std::make_shared<HostSink>(std::move(sink)))});
  impl_->logger.set_level(spdlog_level(level));
  impl_->logger.set_error_handler([](const std::string&) {});  // its default prints
}

Logger::~Logger() = default;

void Logger::log(LogLevel level, std::string_view text) {
  if (impl_) impl_->logger.log(spdlog_level(level), "{}", text);
}

}  // namespace cairn::engine
