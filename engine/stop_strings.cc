// Byte by byte: a stop string that ends here is an end of what is held, because it begins itself.
#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

#include "engine/utf8.h"

namespace cairn::engine {

Status check_stop_strings(const std::vector<std::string>& strings) {
  if (strings.size() > kStopStringsMax) {
    return invalid_argument(std::to_string(strings.size()) + " stop strings; at most " +
                            std::to_string(kStopStringsMax) + " are allowed");
  }
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string& text = strings[i];
    if (!text.empty() && text.size() <= kStopStringBytesMax &&
        valid_utf8_prefix(text) == text.size()) {
      continue;
    }
    return invalid_argument("stop[" + std::to_string(i) + "] has " + std::to_string(text.size()) +
                            " bytes; it must be 1 to " + std::to_string(kStopStringBytesMax) +
                            " bytes of UTF-8");
  }
  return {};
}

bool StopStrings::is_begun(std::string_view text) const {
  return std::ranges::any_of(strings_,
                             [&](const std::string& stop) { return stop.starts_with(text); });
}

std::string StopStrings::push(std::string_view text) {
  std::string released;
  for (const char c : text) {
    held_ += c;
    for (const std::string& stop : strings_) {
      if (held_.ends_with(stop) && stop.size() > found_.size()) found_ = stop;
    }
    if (!found_.empty()) {
      released += held_.substr(0, held_.size() - found_.size());
      held_.clear();
      return released;
    }
    std::size_t n_free = 0;
    while (!is_begun(std::string_view(held_).substr(n_free))) ++n_free;
    released += held_.substr(0, n_free);
    held_.erase(0, n_free);
  }
  return released;
}

std::string StopStrings::release() { return std::exchange(held_, {}); }

}  // namespace cairn::engine
