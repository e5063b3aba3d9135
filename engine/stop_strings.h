// Texts that end an answer, looked for while it is said: what may be the beginning of one is held
// back, so that nothing of it is ever delivered.
#ifndef CAIRN_ENGINE_STOP_STRINGS_H_
#define CAIRN_ENGINE_STOP_STRINGS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

inline constexpr std::size_t kStopStringsMax = 16, kStopStringBytesMax = 256;

// kInvalidArgument: too many, too long, empty, or not UTF-8.
Status check_stop_strings(const std::vector<std::string>& strings);

// However a text is split, the one found is the one that ends first; of several, the longest.
// Copyable. Not thread-safe.
class StopStrings {
 public:
  StopStrings() = default;
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  bool any() const { return !strings_.empty(); }
  // The next piece of the text. Returns what cannot be part of a stop string, in whole characters
  // if the pieces are. Only before one is found.
  std::string push(std::string_view text);
  // The text is over, or something else comes in between: returns what is held back.
  std::string release();
  // Empty while none was found.
  const std::string& found() const { return found_; }

 private:
  bool is_begun(std::string_view text) const;

  std::vector<std::string> strings_;
  std::string held_;  // the longest end of the text that begins one of them
  std::string found_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_STOP_STRINGS_H_
