// A one-pass rewriter over the pattern. It knows where it stands (inside a bracketed class or not)
// and nothing else; what it does not know it refuses, because a pattern read slightly differently
// gives slightly different tokens, which nobody notices.
#include "engine/split_pattern.h"

#include <cstddef>
#include <cstdio>
#include <span>

#include "engine/unicode_ranges.h"

namespace cairn::engine {
namespace {

// The White_Space property as items of a bracketed class.
constexpr std::string_view kWhiteSpaceItems =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::span<const CodePointRange> added_to_category(char category) {
  switch (category) {
    case 'L':
      return kAddedToL;
    case 'M':
      return kAddedToM;
    case 'N':
      return kAddedToN;
    case 'P':
      return kAddedToP;
    case 'S':
      return kAddedToS;
    default:
      return {};
  }
}

// \p{category} of Unicode 16 as items of a bracketed class.
std::string category_items(char category) {
  std::string items = R"(\p{)" + std::string(1, category) + "}";
  for (const CodePointRange& range : added_to_category(category)) {
    char item[32];
    std::snprintf(item, sizeof item, R"(\x{%x}-\x{%x})", static_cast<unsigned>(range.first),
                  static_cast<unsigned>(range.last));
    items += item;
  }
  return items;
}

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> run() {
    while (!rest_.empty()) CAIRN_RETURN_IF_ERROR(term());
    return std::move(out_);
  }

 private:
  Status term() {
    switch (rest_.front()) {
      case '\\':
        return escape(/*in_class=*/false);
      case '[':
        return bracketed_class();
      case '(':
        return group();
      case '.':
      case '^':
      case '$':
        return unsupported(rest_.substr(0, 1));
      case '}':
        if (rest_.starts_with("}+")) return unsupported("}+");  // possessive in PCRE2 only
        break;
      default:
        break;
    }
    copy(1);
    return {};
  }

  Status group() {
    for (const std::string_view opening : {"(?:", "(?!", "(?="}) {
      if (rest_.starts_with(opening)) {
        copy(opening.size());
        return {};
      }
    }
    if (rest_.starts_with("(?") || rest_.starts_with("(*")) return unsupported(rest_.substr(0, 3));
    copy(1);
    return {};
  }

  Status bracketed_class() {
    copy(rest_.starts_with("[^") ? 2 : 1);
    if (rest_.starts_with(']')) return unsupported("[]");
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() == '[') return unsupported("a class inside a class");
      if (rest_.starts_with("&&")) return unsupported("&& in a class");
      if (rest_.front() == '\\') {
        CAIRN_RETURN_IF_ERROR(escape(/*in_class=*/true));
      } else {
        copy(1);
      }
    }
    if (rest_.empty()) return unsupported("a class without end");
    copy(1);
    return {};
  }

  Status escape(bool in_class) {
    if (rest_.size() < 2) return unsupported("a backslash at the end");
    const char kind = rest_[1];
    if (kind == 'p' || kind == 'P') return category(in_class);
    if (kind == 's' || kind == 'S') {
      CAIRN_RETURN_IF_ERROR(emit_class(kind == 'S', kWhiteSpaceItems, in_class));
      rest_.remove_prefix(2);
      return {};
    }
    const bool control = kind == 'r' || kind == 'n' || kind == 't';
    if (!control && !is_ascii_punctuation(kind)) return unsupported(rest_.substr(0, 2));
    copy(2);
    return {};
  }

  Status category(bool in_class) {
    const std::string_view text = rest_.substr(0, 5);  // \p{L}
    const bool known =
        text.size() == 5 && text[2] == '{' && text[4] == '}' && !added_to_category(text[3]).empty();
    if (!known) return unsupported(rest_.substr(0, rest_.find('}')));
    CAIRN_RETURN_IF_ERROR(emit_class(text[1] == 'P', category_items(text[3]), in_class));
    rest_.remove_prefix(text.size());
    return {};
  }

  Status emit_class(bool negated, std::string_view items, bool in_class) {
    if (in_class && negated) return unsupported("a negated class inside a class");
    if (in_class) {
      out_ += items;
    } else {
      out_.append(negated ? "[^" : "[").append(items).append("]");
    }
    return {};
  }

  void copy(std::size_t n_bytes) {
    out_ += rest_.substr(0, n_bytes);
    rest_.remove_prefix(n_bytes);
  }

  static Status unsupported(std::string_view what) {
    return {StatusCode::kUnsupported, "regular expression uses " + std::string(what)};
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

Result<std::string> translate_split_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace cairn::engine
