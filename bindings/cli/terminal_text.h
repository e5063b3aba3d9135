// Text for a terminal: from strangers, of limited width, of times.
#ifndef CAIRN_BINDINGS_CLI_TERMINAL_TEXT_H_
#define CAIRN_BINDINGS_CLI_TERMINAL_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::cli {

// Names and text come from files: a terminal gets no control characters, no bytes that are not
// UTF-8 and nothing that changes the direction of writing; each becomes '?'.
std::string printable(std::string_view text);

// Characters. (Wide ones count one, as the terminal is not asked.)
std::size_t width_of(std::string_view utf8);

// At most `width` characters, the last of them "…" where some are left out.
std::string cut_to(std::string_view utf8, std::size_t width);

// Columns that a line of `used` leaves free on the terminal that stdout is; many where it is none.
std::size_t room_beside(std::size_t used);

std::string utc_time(std::int64_t unix_ms);  // "2026-11-30 21:14:05 UTC"
std::string time_ago(std::int64_t unix_ms);  // "5 min ago"; the date where that is long

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_TERMINAL_TEXT_H_
