// Reading UTF-8 that may be broken: one step of a decoder.
#ifndef CAIRN_ENGINE_UTF8_H_
#define CAIRN_ENGINE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn::engine {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum class Kind {
    kCharacter,   // a well-formed character
    kIncomplete,  // the text ends inside a character that more bytes could complete
    kInvalid,     // the maximal run of bytes that no continuation makes well-formed
  };
  Kind kind;
  std::size_t n_bytes;  // at least 1; the one piece to consume or to replace by U+FFFD
};

// Looks at the start of `text`, which must not be empty. Well-formed is as in table 3-7 of the
// Unicode standard: no surrogates, no overlong forms, nothing above U+10FFFF.
Utf8Step next_utf8(std::string_view text);

// Bytes of the longest well-formed prefix.
std::size_t valid_utf8_prefix(std::string_view text);

// The text with every invalid or incomplete run replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Appends the UTF-8 form of a Unicode scalar value.
void append_utf8(char32_t code, std::string& out);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_UTF8_H_
