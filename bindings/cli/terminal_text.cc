#include "bindings/cli/terminal_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "engine/utf8.h"

namespace cairn::cli {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Of one well-formed character.
bool is_harmless(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first >= 0x20 && first != 0x7f;
  const auto second = static_cast<unsigned char>(character[1]);
  if (character.size() == 2) return first != 0xc2 || second >= 0xa0;  // U+0080 .. U+009F
  if (first != 0xe2) return true;
  const auto third = static_cast<unsigned char>(character[2]);
  const bool line_or_direction =
      second == 0x80 && ((third >= 0x8e && third <= 0x8f) || (third >= 0xa8 && third <= 0xae));
  const bool isolate = second == 0x81 && third >= 0xa6 && third <= 0xa9;
  return !line_or_direction && !isolate;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const engine::Utf8Step step = engine::next_utf8(text);
    const std::string_view piece = text.substr(0, step.n_bytes);
    const bool harmless = step.kind == engine::Utf8Step::Kind::kCharacter && is_harmless(piece);
    out += harmless ? piece : "?";
    text.remove_prefix(step.n_bytes);
  }
  return out;
}

std::size_t width_of(std::string_view utf8) {
  std::size_t width = 0;
  for (const char c : utf8) width += !is_continuation(c);
  return width;
}

std::string cut_to(std::string_view utf8, std::size_t width) {
  if (width_of(utf8) <= width) return std::string(utf8);
  if (width == 0) return {};
  std::size_t end = 0;
  for (std::size_t n = 0; end < utf8.size(); ++end) {
    if (!is_continuation(utf8[end]) && ++n == width) break;
  }
  return std::string(utf8.substr(0, end)) + "…";
}

std::size_t room_beside(std::size_t used) {
  winsize size = {};
  const bool is_terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const std::size_t width = is_terminal ? size.ws_col : 100'000;
  return width - std::min(width, used);
}

std::string utc_time(std::int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%F %T UTC", &utc)};
}

std::string time_ago(std::int64_t unix_ms) {
  using namespace std::chrono;
  const std::int64_t now =
      duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  const std::int64_t seconds = (now - unix_ms) / 1000;
  if (seconds < 0 || seconds >= 30 * 86400) return utc_time(unix_ms).substr(0, 10);
  if (seconds < 60) return std::to_string(seconds) + " s ago";
  if (seconds < 3600) return std::to_string(seconds / 60) + " min ago";
  if (seconds < 86400) return std::to_string(seconds / 3600) + " h ago";
  return std::to_string(seconds / 86400) + " d ago";
}

}  // namespace cairn::cli
