// Patterns against PCRE2: random expressions of the subset over random texts.
#include "engine/schema_pattern.h"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/decimal_order.h"

namespace cairn::engine {
namespace {

// PCRE2's answer; its newlines are set to what `.` excludes in ECMA-262.
class Oracle {
 public:
  explicit Oracle(const std::string& pattern) {
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_ANYCRLF);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, context);
    pcre2_compile_context_free(context);
  }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  ~Oracle() { pcre2_code_free(code_); }

  bool ok() const { return code_ != nullptr; }
  bool matches(const std::string& text) const {
    pcre2_match_data* data = pcre2_match_data_create_from_pattern(code_, nullptr);
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                  0, data, nullptr);
    pcre2_match_data_free(data);
    return found >= 0;
  }

 private:
  pcre2_code* code_ = nullptr;
};

class RandomPattern {
 public:
  explicit RandomPattern(std::mt19937_64& random) : random_(random) {}

  std::string choice(int depth) {
    std::string out = sequence(depth);
    while (below(4) == 0) out += "|" + sequence(depth);
    return out;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string one_of(const std::vector<std::string>& list) { return list[below(list.size())]; }

  std::string sequence(int depth) {
    std::string out;
    for (std::size_t n = below(4); n > 0; --n) out += below(10) == 0 ? anchor() : repeated(depth);
    return out;
  }
  std::string anchor() { return one_of({"^", "$"}); }
  std::string repeated(int depth) {
    return atom(depth) + (below(2) == 0 ? one_of({"*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}",
                                                  "*?", "+?", "??", "{2,3}?"})
                                        : "");
  }
  std::string atom(int depth) {
    if (depth > 0 && below(3) == 0) {
      return one_of({"(", "(?:", "(?<n" + std::to_string(n_groups_++) + ">"}) + choice(depth - 1) +
             ")";
    }
    return one_of({"a",    "b",      "c",     "1",     "-",        "é",         "\\.",    "\\\\",
                   "\\n",  "\\t",    "\\x61", ".",     "\\d",      "\\D",       "\\w",    "\\W",
                   "\\s",  "\\S",    "[ab]",  "[^ab]", "[a-c1-3]", "[^\\d\\s]", "[\\w-]", "[é-ü]",
                   "[^é]", "[.\\]]", "\\/",   "日",    "[ぁ-ん日]"});
  }

  std::mt19937_64& random_;
  int n_groups_ = 0;
};

std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {"a",  "b", "c",  "1",  "2", "-",
                                                   "é",  "ü", ".",  "\\", " ", "\n",
                                                   "\t", "_", "日", "ん", "😀", "]"};
  std::string text;
  for (std::size_t n = random() % 7; n > 0; --n) text += kPieces[random() % kPieces.size()];
  return text;
}

TEST(SchemaPattern, agrees_with_another_engine_on_random_patterns) {
  constexpr std::uint64_t kSeed = 7;
  std::mt19937_64 random(kSeed);
  int n_compared = 0, n_matches = 0, n_too_large = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string pattern = RandomPattern(random).choice(2);
    const Oracle oracle(pattern);
    ASSERT_TRUE(oracle.ok()) << pattern;
    const auto dfa = compile_pattern(pattern);
    if (!dfa.ok()) {  // some need very many states
      ASSERT_EQ(dfa.status().code(), StatusCode::kUnsupported) << dfa.status().to_string();
      ++n_too_large;
      continue;
    }
    for (int j = 0; j < 20; ++j) {
      const std::string text = random_text(random);
      const bool matches = oracle.matches(text);
      ASSERT_EQ((*dfa)->accepts_text(text), matches) << pattern << " on '" << text << "'";
      ++n_compared;
      n_matches += matches;
    }
  }
  std::printf("seed %llu: %d texts compared, %d match\n", static_cast<unsigned long long>(kSeed),
              n_compared, n_matches);
  EXPECT_LE(n_too_large, 15);
  EXPECT_GT(n_matches, n_compared / 5);
  EXPECT_LT(n_matches, n_compared * 4 / 5 + n_compared / 10);
}

TEST(SchemaPattern, matches_whole_characters_of_well_formed_text_only) {
  const auto any = compile_pattern("");
  ASSERT_TRUE(any.ok());
  EXPECT_TRUE((*any)->accepts_text("a\xF0\x9F\x98\x80"));
  for (const std::string broken :
       {"\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE3\x81"}) {
    EXPECT_FALSE((*any)->accepts_text(broken)) << broken;
  }
  const auto one = compile_pattern("^.$");
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE((*one)->accepts_text("😀"));
  EXPECT_FALSE((*one)->accepts_text("ab"));
}

TEST(SchemaPattern, escapes_name_code_points) {
  for (const std::string pattern : {"^\\u00e9$", "^\\u{E9}$", "^\\xe9$", "^[\\u00e8-\\u00ea]$"}) {
    const auto dfa = compile_pattern(pattern);
    ASSERT_TRUE(dfa.ok()) << dfa.status().to_string();
    EXPECT_TRUE((*dfa)->accepts_text("é")) << pattern;
    EXPECT_FALSE((*dfa)->accepts_text("e")) << pattern;
  }
  const auto pair = compile_pattern("^\\uD83D\\uDE00$");
  ASSERT_TRUE(pair.ok());
  EXPECT_TRUE((*pair)->accepts_text("😀"));
}

TEST(SchemaPattern, refuses_what_is_no_regular_language_or_malformed) {
  const std::vector<std::string> unsupported = {"(?=a)",   "(?!a)",   "(?<=a)",  "(?<!a)", "\\1",
                                                "\\bword", "\\B",     "\\p{L}",  "(?i)a",  "\\cA",
                                                "\\k<n>",  "\\uD800", "a{20000}"};
  for (const std::string& pattern : unsupported) {
    const auto dfa = compile_pattern(pattern);
    EXPECT_EQ(dfa.status().code(), StatusCode::kUnsupported) << pattern;
    EXPECT_NE(dfa.status().message().find(pattern), std::string::npos);
  }
  for (const std::string pattern : {"(", ")", "a)", "[a", "*", "a**", "a{2,1}", "a{x}", "\\",
                                    "[b-a]", "]", "}", "\\y", "^*", "(?<>a)", "\\u12", "a\xFF"}) {
    EXPECT_EQ(compile_pattern(pattern).status().code(), StatusCode::kInvalidArgument) << pattern;
  }
}

TEST(SchemaPattern, bounds_the_work_of_expensive_patterns) {
  const std::vector<std::string> patterns = {"(a|b)*a(a|b){20}",
                                             "((a{100}){100}){100}",
                                             "(.*a){400}",
                                             "([a-z]*b){9000}",
                                             std::string(20'000, 'a'),
                                             std::string(100, '(') + "a" + std::string(100, ')')};
  for (const std::string& pattern : patterns) {
    const auto dfa = compile_pattern(pattern);
    EXPECT_EQ(dfa.status().code(), StatusCode::kUnsupported) << pattern.substr(0, 40);
  }
}

TEST(DecimalOrder, agrees_with_the_order_of_numbers) {
  std::mt19937_64 random(11);
  const auto number = [&]() -> std::string {
    std::string text = random() % 3 == 0 ? "-" : "";
    const std::uint64_t integer = random() % 4 == 0 ? 0 : random() % 1200;
    text += std::to_string(integer);
    if (random() % 2 == 0) {
      text += ".";
      for (std::size_t n = 1 + random() % 4; n > 0; --n)
        text += static_cast<char>('0' + random() % 10);
    }
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string bound_text = number();
    const auto bound = parse_decimal(bound_text);
    ASSERT_TRUE(bound.ok());
    const double limit = std::stod(bound_text);
    const std::vector<std::pair<DecimalOrder, std::function<bool(double)>>> orders = {
        {DecimalOrder::kAtLeast, [&](double x) { return x >= limit; }},
        {DecimalOrder::kMoreThan, [&](double x) { return x > limit; }},
        {DecimalOrder::kAtMost, [&](double x) { return x <= limit; }},
        {DecimalOrder::kLessThan, [&](double x) { return x < limit; }}};
    for (const auto& [order, holds] : orders) {
      const auto dfa = decimals_in_order(order, *bound);
      ASSERT_TRUE(dfa.ok());
      std::vector<std::string> texts = {
          bound_text,
          bound_text +
              (bound->is_integer() && bound_text.find('.') == std::string::npos ? ".0" : "0")};
      for (int j = 0; j < 30; ++j) texts.push_back(number());
      for (const std::string& text : texts) {
        ASSERT_EQ((*dfa)->accepts_text(text), holds(std::stod(text)))
            << text << " against " << bound_text << ", order " << static_cast<int>(order);
      }
    }
  }
}

TEST(DecimalOrder, writes_numbers_out) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1e3", "1000"},        {"1.50", "1.5"},       {"-0.0", "0"},          {"12e-3", "0.012"},
      {"1e-07", "0.0000001"}, {"-1.25E+1", "-12.5"}, {"100000.0", "100000"}, {"0.5", "0.5"}};
  for (const auto& [literal, text] : cases) {
    const auto decimal = parse_decimal(literal);
    ASSERT_TRUE(decimal.ok()) << literal;
    EXPECT_EQ(decimal->text(), text);
  }
  EXPECT_EQ(parse_decimal("1e500").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(parse_decimal("1e99999999999999999999").status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace cairn::engine
