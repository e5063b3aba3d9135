// The markup of model output: think markers and the tags of tool calls, read tolerantly
// (spec/prompt-format.md sections 4.1 and 4.2).
//
// The parser works on one string of text and markers: text is well-formed UTF-8, and a marker that
// arrived as a token is one byte that UTF-8 never uses, so text can not be taken for it.
#ifndef CAIRN_ENGINE_OUTPUT_MARKUP_H_
#define CAIRN_ENGINE_OUTPUT_MARKUP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::engine {

inline constexpr char kThinkBeginCode = '\xF8';
inline constexpr char kThinkEndCode = '\xF9';
inline constexpr char kDsmlCode = '\xFA';

struct Markup {
  enum class Kind {
    kThinkBegin,
    kThinkEnd,
    kCallsBegin,
    kCallsEnd,
    kInvokeBegin,
    kInvokeEnd,
    kParameterBegin,
    kParameterEnd,
  };
  Kind kind = Kind::kThinkBegin;
  std::size_t n_bytes = 0;
  std::string name;               // begin of an invoke or a parameter; never empty there
  std::optional<bool> is_string;  // begin of a parameter: its `string` attribute, if it is readable
};

// Markers that the tokenizer does not have arrive spelled out and are recognised in text. The
// spelling of tags with ASCII bars always is.
struct MarkupSpelling {
  bool think_as_text = false;
  bool dsml_as_text = false;
};

// White space inside and between tags.
inline constexpr std::string_view kMarkupSpace = " \t\r\n";

// No tag is longer, so the parser holds back at most this much.
inline constexpr std::size_t kMaxMarkupBytes = 1024;

enum class MarkupMatch { kNo, kMore, kYes };

// Whether `text`, which starts with `<` or a marker byte, starts with markup. kMore: what there is
// could become markup. The answer for a text is final for every longer text unless it is kMore.
MarkupMatch read_markup(std::string_view text, MarkupSpelling spelling, Markup& out);

// Whether `text` starts with the beginning of a tag up to and including its DSML marker.
bool begins_tag(std::string_view text, MarkupSpelling spelling);

// Position of the first character that may start markup, or npos.
std::size_t find_markup_start(std::string_view text);

// The text with marker bytes spelled out.
std::string spelled_out(std::string_view text);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_OUTPUT_MARKUP_H_
