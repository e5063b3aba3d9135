// A hand-written matcher with three answers. Every reader below either consumes what it matches
// and says kYes, or says kNo, or says kMore when the text ends before the question is decided;
// a tag is a sequence of readers that stops at the first answer that is not kYes.
#include "engine/output_markup.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/prompt_markers.h"

namespace cairn::engine {
namespace {

constexpr std::string_view kAsciiDsml = "|DSML|";
constexpr std::string_view kMarkupStarts = "<\xF8\xF9\xFA";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  std::size_t position() const { return position_; }
  std::string_view rest() const { return text_.substr(position_); }

  MarkupMatch literal(std::string_view expected) {
    const std::string_view found = rest().substr(0, expected.size());
    if (!expected.starts_with(found)) return MarkupMatch::kNo;
    if (found.size() < expected.size()) return MarkupMatch::kMore;
    position_ += expected.size();
    return MarkupMatch::kYes;
  }

  // The first of some literals, none of which is the beginning of another.
  template <class Literals>
  MarkupMatch one_of(const Literals& literals, std::string_view& found) {
    MarkupMatch answer = MarkupMatch::kNo;
    for (const std::string_view candidate : literals) {
      const MarkupMatch match = literal(candidate);
      if (match == MarkupMatch::kYes) found = candidate;
      answer = std::max(answer, match);
      if (match == MarkupMatch::kYes) break;
    }
    return answer;
  }

  void skip_space() {
    position_ = std::min(text_.find_first_not_of(kMarkupSpace, position_), text_.size());
  }

  MarkupMatch identifier(std::string_view& name) {
    const auto end = std::ranges::find_if_not(rest(), is_name_character);
    name = rest().substr(0, static_cast<std::size_t>(end - rest().begin()));
    if (name.size() == rest().size()) return MarkupMatch::kMore;
    position_ += name.size();
    return name.empty() ? MarkupMatch::kNo : MarkupMatch::kYes;
  }

  // A value in double quotes. It holds nothing that a name could not hold.
  MarkupMatch quoted(std::string_view& value) {
    if (const MarkupMatch match = literal("\""); match != MarkupMatch::kYes) return match;
    const std::size_t n = rest().find_first_of("\"<>\n\xF8\xF9\xFA");
    if (n == std::string_view::npos) return MarkupMatch::kMore;
    if (rest()[n] != '"') return MarkupMatch::kNo;
    value = rest().substr(0, n);
    position_ += n + 1;
    return MarkupMatch::kYes;
  }

 private:
  std::string_view text_;
  std::size_t position_ = 0;
};

struct TagName {
  std::string_view spelling;
  Markup::Kind begin, end;
};
// `calls` and its older spellings.
constexpr std::array<TagName, 5> kTagNames = {{
    {"calls", Markup::Kind::kCallsBegin, Markup::Kind::kCallsEnd},
    {"tool_calls", Markup::Kind::kCallsBegin, Markup::Kind::kCallsEnd},
    {"function_calls", Markup::Kind::kCallsBegin, Markup::Kind::kCallsEnd},
    {"invoke", Markup::Kind::kInvokeBegin, Markup::Kind::kInvokeEnd},
    {"parameter", Markup::Kind::kParameterBegin, Markup::Kind::kParameterEnd},
}};

// `<` or `</` and the DSML marker in one of its spellings.
MarkupMatch read_tag_start(Cursor& cursor, MarkupSpelling spelling, bool& is_end) {
  if (const auto match = cursor.literal("<"); match != MarkupMatch::kYes) return match;
  const MarkupMatch slash = cursor.literal("/");
  if (slash == MarkupMatch::kMore) return slash;
  is_end = slash == MarkupMatch::kYes;
  const std::array<std::string_view, 3> markers = {std::string_view(&kDsmlCode, 1), kAsciiDsml,
                                                   spelling.dsml_as_text ? kDsml : kAsciiDsml};
  std::string_view found;
  return cursor.one_of(markers, found);
}

MarkupMatch read_tag_name(Cursor& cursor, bool is_end, Markup::Kind& kind) {
  std::array<std::string_view, kTagNames.size()> spellings;
  std::ranges::transform(kTagNames, spellings.begin(), &TagName::spelling);
  std::string_view found;
  const MarkupMatch match = cursor.one_of(spellings, found);
  if (match != MarkupMatch::kYes) return match;
  const TagName& name = *std::ranges::find(kTagNames, found, &TagName::spelling);
  kind = is_end ? name.end : name.begin;
  return match;
}

MarkupMatch read_attribute(Cursor& cursor, Markup& out) {
  std::string_view name, value;
  if (const auto match = cursor.identifier(name); match != MarkupMatch::kYes) return match;
  cursor.skip_space();
  if (const auto match = cursor.literal("="); match != MarkupMatch::kYes) return match;
  cursor.skip_space();
  if (const auto match = cursor.quoted(value); match != MarkupMatch::kYes) return match;
  if (name == "name") out.name = value;
  if (name == "string" && (value == "true" || value == "false")) out.is_string = value == "true";
  return MarkupMatch::kYes;
}

// Attributes in any order up to and including `>`.
MarkupMatch read_attributes(Cursor& cursor, Markup& out) {
  for (;;) {
    cursor.skip_space();
    const MarkupMatch end = cursor.literal(">");
    if (end == MarkupMatch::kMore) return end;
    if (end == MarkupMatch::kYes) return out.name.empty() ? MarkupMatch::kNo : MarkupMatch::kYes;
    const MarkupMatch match = read_attribute(cursor, out);
    if (match != MarkupMatch::kYes) return match;
  }
}

MarkupMatch read_tag(std::string_view text, MarkupSpelling spelling, Markup& out) {
  Cursor cursor(text);
  bool is_end = false;
  if (const auto match = read_tag_start(cursor, spelling, is_end); match != MarkupMatch::kYes) {
    return match;
  }
  cursor.skip_space();
  if (const auto match = read_tag_name(cursor, is_end, out.kind); match != MarkupMatch::kYes) {
    return match;
  }
  const bool has_attributes =
      out.kind == Markup::Kind::kInvokeBegin || out.kind == Markup::Kind::kParameterBegin;
  cursor.skip_space();
  const MarkupMatch match = has_attributes ? read_attributes(cursor, out) : cursor.literal(">");
  out.n_bytes = cursor.position();
  return match;
}

MarkupMatch read_think(std::string_view text, Markup& out) {
  Cursor cursor(text);
  std::string_view found;
  const MarkupMatch match = cursor.one_of(std::array{kThinkBegin, kThinkEnd}, found);
  if (match == MarkupMatch::kYes) {
    out.kind = found == kThinkBegin ? Markup::Kind::kThinkBegin : Markup::Kind::kThinkEnd;
    out.n_bytes = found.size();
  }
  return match;
}

}  // namespace

MarkupMatch read_markup(std::string_view text, MarkupSpelling spelling, Markup& out) {
  out = {};
  if (text.front() == kThinkBeginCode || text.front() == kThinkEndCode) {
    out.kind =
        text.front() == kThinkBeginCode ? Markup::Kind::kThinkBegin : Markup::Kind::kThinkEnd;
    out.n_bytes = 1;
    return MarkupMatch::kYes;
  }
  const MarkupMatch think = spelling.think_as_text ? read_think(text, out) : MarkupMatch::kNo;
  if (think == MarkupMatch::kYes) return think;
  const MarkupMatch tag = read_tag(text, spelling, out);
  const std::size_t n_bytes = tag == MarkupMatch::kYes ? out.n_bytes : text.size();
  if (n_bytes > kMaxMarkupBytes) return MarkupMatch::kNo;
  return std::max(think, tag);
}

bool begins_tag(std::string_view text, MarkupSpelling spelling) {
  Cursor cursor(text);
  bool is_end = false;
  return read_tag_start(cursor, spelling, is_end) == MarkupMatch::kYes;
}

std::size_t find_markup_start(std::string_view text) { return text.find_first_of(kMarkupStarts); }

std::string spelled_out(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case kThinkBeginCode:
        out += kThinkBegin;
        break;
      case kThinkEndCode:
        out += kThinkEnd;
        break;
      case kDsmlCode:
        out += kDsml;
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace cairn::engine
