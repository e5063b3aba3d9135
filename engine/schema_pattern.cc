// A recursive-descent parser of the expression into a tree, then the tree as a nondeterministic
// automaton. The tree is needed because a counted repetition copies its part.
#include "engine/schema_pattern.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/byte_nfa.h"
#include "engine/utf8.h"

namespace cairn::engine {
namespace {

constexpr std::size_t kMaxPatternBytes = 16'384;
constexpr int kMaxGroupDepth = 64;
constexpr std::uint32_t kMaxRepetition = 10'000;
constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();
constexpr char32_t kLastCode = 0x10FFFF;

using Ranges = std::vector<CodeRange>;

const Ranges kDigits = {{'0', '9'}};
const Ranges kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpaces = {{0x09, 0x0D},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                        {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const Ranges kAnything = {{0, kLastCode}};

Ranges complement(Ranges ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::first);
  Ranges out;
  char32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = std::max(next, static_cast<char32_t>(range.last + 1));
  }
  if (next <= kLastCode) out.push_back({next, kLastCode});
  return out;
}

struct Piece {
  enum class Kind { kCharacter, kSequence, kChoice, kRepetition, kStart, kEnd };
  Kind kind = Kind::kSequence;
  Ranges ranges;             // kCharacter
  std::vector<Piece> parts;  // kSequence, kChoice; the one part of kRepetition
  std::uint32_t min = 0, max = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Piece> parse() {
    CAIRN_ASSIGN_OR_RETURN(Piece piece, choice());
    if (position_ < text_.size()) return malformed("unmatched ')'");
    return piece;
  }

 private:
  Status malformed(const std::string& what) const {
    return invalid_argument("malformed at byte " + std::to_string(position_) + ": " + what);
  }
  Status unsupported(const std::string& what) const {
    return {StatusCode::kUnsupported,
            what + " at byte " + std::to_string(position_) + " is not supported",
            "use characters, classes, groups, alternation, repetition and anchors only"};
  }

  bool at_end() const { return position_ == text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(position_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    position_ += what.size();
    return true;
  }

  Result<Piece> choice() {
    Piece piece;
    piece.kind = Piece::Kind::kChoice;
    do {
      CAIRN_ASSIGN_OR_RETURN(Piece part, sequence());
      piece.parts.push_back(std::move(part));
    } while (take("|"));
    return piece;
  }

  Result<Piece> sequence() {
    Piece piece;
    while (!at_end() && !sees("|") && !sees(")")) {
      CAIRN_ASSIGN_OR_RETURN(Piece part, atom());
      CAIRN_ASSIGN_OR_RETURN(part, repeated(std::move(part)));
      piece.parts.push_back(std::move(part));
    }
    return piece;
  }

  Result<Piece> repeated(Piece part) {
    std::uint32_t min = 0, max = kNoLimit;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      CAIRN_ASSIGN_OR_RETURN(min, number());
      max = min;
      if (take(",")) {
        max = kNoLimit;
        if (!sees("}")) {
          CAIRN_ASSIGN_OR_RETURN(max, number());
        }
      }
      if (!take("}")) return malformed("expected '}'");
      if (max < min) return malformed("repetition bounds are out of order");
    } else {
      return part;
    }
    if (part.kind == Piece::Kind::kStart || part.kind == Piece::Kind::kEnd) {
      return malformed("nothing to repeat");
    }
    take("?");  // lazy: the same texts
    if (sees("*") || sees("+") || sees("?") || sees("{")) return malformed("nothing to repeat");
    Piece piece;
    piece.kind = Piece::Kind::kRepetition;
    piece.min = min;
    piece.max = max;
    piece.parts.push_back(std::move(part));
    return piece;
  }

  Result<std::uint32_t> number() {
    std::uint32_t value = 0;
    const std::size_t begin = position_;
    for (; !at_end() && text_[position_] >= '0' && text_[position_] <= '9'; ++position_) {
      value = value * 10 + static_cast<std::uint32_t>(text_[position_] - '0');
      if (value > kMaxRepetition) {
        return unsupported("a repetition of more than " + std::to_string(kMaxRepetition));
      }
    }
    if (position_ == begin) return malformed("expected a number");
    return value;
  }

  static Piece character(Ranges ranges) {
    Piece piece;
    piece.kind = Piece::Kind::kCharacter;
    piece.ranges = std::move(ranges);
    return piece;
  }
  static Piece anchor(Piece::Kind kind) {
    Piece piece;
    piece.kind = kind;
    return piece;
  }

  Result<Piece> atom() {
    if (take("^")) return anchor(Piece::Kind::kStart);
    if (take("$")) return anchor(Piece::Kind::kEnd);
    if (take("(")) return group();
    if (take("[")) return character_class();
    if (take(".")) return character(complement(kLineEnds));
    if (take("\\")) return escape();
    for (const std::string_view special : {"*", "+", "?", "{"}) {
      if (sees(special)) return malformed("nothing to repeat");
    }
    if (sees("]") || sees("}")) return malformed("unmatched bracket");
    CAIRN_ASSIGN_OR_RETURN(const char32_t code, literal());
    return character({{code, code}});
  }

  Result<Piece> group() {
    if (take("?")) {
      if (sees("=") || sees("!") || sees("<=") || sees("<!")) return unsupported("look-around");
      if (take("<")) {
        const std::size_t end = text_.find('>', position_);
        if (end == std::string_view::npos || end == position_) return malformed("group name");
        position_ = end + 1;
      } else if (!take(":")) {
        return unsupported("a group with flags");
      }
    }
    if (++depth_ > kMaxGroupDepth) {
      return unsupported("nesting of more than " + std::to_string(kMaxGroupDepth) + " groups");
    }
    CAIRN_ASSIGN_OR_RETURN(Piece piece, choice());
    --depth_;
    if (!take(")")) return malformed("unmatched '('");
    return piece;
  }

  // The next character of the pattern as itself.
  Result<char32_t> literal() {
    const Utf8Step step = next_utf8(text_.substr(position_));
    if (step.kind != Utf8Step::Kind::kCharacter) return malformed("invalid UTF-8");
    char32_t code = static_cast<std::uint8_t>(text_[position_]);
    if (step.n_bytes > 1) code &= (0x7Fu >> step.n_bytes);
    for (std::size_t i = 1; i < step.n_bytes; ++i) {
      code = (code << 6) | (static_cast<std::uint8_t>(text_[position_ + i]) & 0x3Fu);
    }
    position_ += step.n_bytes;
    return code;
  }

  static std::optional<Ranges> named_class(char name) {
    switch (name) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWordCharacters;
      case 'W':
        return complement(kWordCharacters);
      case 's':
        return kSpaces;
      case 'S':
        return complement(kSpaces);
      default:
        return std::nullopt;
    }
  }

  // After the backslash.
  Result<Piece> escape() {
    if (at_end()) return malformed("nothing after '\\'");
    if (const auto ranges = named_class(text_[position_])) {
      ++position_;
      return character(*ranges);
    }
    CAIRN_ASSIGN_OR_RETURN(const char32_t code, escaped_character());
    return character({{code, code}});
  }

  Result<char32_t> escaped_character() {
    if (at_end()) return malformed("nothing after '\\'");
    const char c = text_[position_];
    switch (c) {
      case 't':
        return ++position_, U'\t';
      case 'n':
        return ++position_, U'\n';
      case 'v':
        return ++position_, U'\v';
      case 'f':
        return ++position_, U'\f';
      case 'r':
        return ++position_, U'\r';
      case 'x':
        ++position_;
        return hex(2, 2);
      case 'u':
        ++position_;
        return unicode_escape();
      case 'b':
      case 'B':
        return unsupported("a word boundary");
      case 'p':
      case 'P':
        return unsupported("a Unicode property");
      case 'c':
      case 'k':
        return unsupported(std::string("\\") + c);
      default:
        break;
    }
    if (c == '0' && !(position_ + 1 < text_.size() && text_[position_ + 1] >= '0' &&
                      text_[position_ + 1] <= '9')) {
      return ++position_, U'\0';
    }
    if (c >= '0' && c <= '9') return unsupported("a back reference");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return malformed(std::string("unknown escape \\") + c);
    }
    return literal();
  }

  // Between `min` and `max` digits.
  Result<char32_t> hex(int min, int max) {
    char32_t value = 0;
    int n = 0;
    for (; n < max && !at_end(); ++n, ++position_) {
      const char c = text_[position_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (n < min) return malformed("expected hexadecimal digits");
    return value;
  }

  Result<char32_t> unicode_escape() {
    char32_t code = 0;
    if (take("{")) {
      CAIRN_ASSIGN_OR_RETURN(code, hex(1, 6));
      if (!take("}") || code > kLastCode) return malformed("code point");
    } else {
      CAIRN_ASSIGN_OR_RETURN(code, hex(4, 4));
      if (code >= 0xD800 && code <= 0xDBFF && take("\\u")) {
        CAIRN_ASSIGN_OR_RETURN(const char32_t low, hex(4, 4));
        if (low < 0xDC00 || low > 0xDFFF) return malformed("surrogates that are no pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (code >= 0xD800 && code <= 0xDFFF) return unsupported("a lone surrogate");
    return code;
  }

  // After the opening bracket.
  Result<Piece> character_class() {
    const bool is_negated = take("^");
    Ranges ranges;
    while (!take("]")) {
      if (at_end()) return malformed("unmatched '['");
      CAIRN_ASSIGN_OR_RETURN(const Ranges first, class_member());
      const bool is_range = sees("-") && !sees("-]");
      if (!is_range) {
        ranges.insert(ranges.end(), first.begin(), first.end());
        continue;
      }
      take("-");
      if (at_end()) return malformed("unmatched '['");
      CAIRN_ASSIGN_OR_RETURN(const Ranges last, class_member());
      const bool are_characters = first.size() == 1 && last.size() == 1 &&
                                  first[0].first == first[0].last && last[0].first == last[0].last;
      if (!are_characters || first[0].first > last[0].first) return malformed("range in a class");
      ranges.push_back({first[0].first, last[0].first});
    }
    return character(is_negated ? complement(std::move(ranges)) : std::move(ranges));
  }

  Result<Ranges> class_member() {
    char32_t code = 0;
    if (take("\\")) {
      if (at_end()) return malformed("nothing after '\\'");
      if (const auto ranges = named_class(text_[position_])) {
        ++position_;
        return *ranges;
      }
      if (take("b")) return Ranges{{'\b', '\b'}};
      CAIRN_ASSIGN_OR_RETURN(code, escaped_character());
    } else {
      CAIRN_ASSIGN_OR_RETURN(code, literal());
    }
    return Ranges{{code, code}};
  }

  std::string_view text_;
  std::size_t position_ = 0;
  int depth_ = 0;
};

// Adds the piece between two states. Adding stops when the automaton is full.
void add_piece(const Piece& piece, ByteNfa::State from, ByteNfa::State to, ByteNfa& nfa) {
  using When = ByteNfa::When;
  if (nfa.is_full()) return;
  switch (piece.kind) {
    case Piece::Kind::kCharacter:
      for (const CodeRange& range : piece.ranges) nfa.add_characters(from, to, range);
      return;
    case Piece::Kind::kStart:
      return nfa.add_jump(from, to, When::kAtStart);
    case Piece::Kind::kEnd:
      return nfa.add_jump(from, to, When::kAtEnd);
    case Piece::Kind::kChoice:
      for (const Piece& part : piece.parts) add_piece(part, from, to, nfa);
      return;
    case Piece::Kind::kSequence: {
      ByteNfa::State at = from;
      for (const Piece& part : piece.parts) {
        const ByteNfa::State next = nfa.add_state();
        add_piece(part, at, next, nfa);
        at = next;
      }
      return nfa.add_jump(at, to);
    }
    case Piece::Kind::kRepetition:
      break;
  }
  const Piece& part = piece.parts.front();
  ByteNfa::State at = nfa.add_state();
  nfa.add_jump(from, at);
  const std::uint32_t n_copies = piece.max == kNoLimit ? piece.min : piece.max;
  for (std::uint32_t i = 0; i < n_copies && !nfa.is_full(); ++i) {
    if (i >= piece.min) nfa.add_jump(at, to);
    const ByteNfa::State next = nfa.add_state();
    add_piece(part, at, next, nfa);
    at = next;
  }
  nfa.add_jump(at, to);
  if (piece.max != kNoLimit) return;
  const ByteNfa::State again = nfa.add_state();
  add_piece(part, at, again, nfa);
  nfa.add_jump(again, at);
}

}  // namespace

Result<SharedDfa> compile_pattern(std::string_view pattern) {
  const std::string where = "pattern '" + std::string(pattern.substr(0, 100)) + "': ";
  const auto in_context = [&](const Status& status) {
    return Status(status.code(), where + std::string(status.message()), std::string(status.hint()));
  };
  if (pattern.size() > kMaxPatternBytes) {
    return Status(StatusCode::kUnsupported,
                  where + "is longer than " + std::to_string(kMaxPatternBytes) + " bytes");
  }
  const Result<Piece> piece = Parser(pattern).parse();
  if (!piece.ok()) return in_context(piece.status());

  // Anything before and after, as a match is looked for.
  ByteNfa nfa;
  const ByteNfa::State before = nfa.add_state(), begin = nfa.add_state(), end = nfa.add_state();
  nfa.add_jump(before, begin);
  nfa.add_characters(before, before, kAnything.front());
  nfa.add_characters(end, end, kAnything.front());
  add_piece(*piece, begin, end, nfa);
  if (nfa.is_full()) {
    return Status(StatusCode::kUnsupported, where + "is too large when written out",
                  "lower its repetition bounds");
  }
  Result<SharedDfa> dfa = nfa.determinised(before, end);
  return dfa.ok() ? dfa : in_context(dfa.status());
}

}  // namespace cairn::engine
