#include "engine/utf8.h"

#include <gtest/gtest.h>

namespace cairn::engine {
namespace {

TEST(Utf8, every_scalar_value_is_one_character) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, text);
    const Utf8Step step = next_utf8(text + "x");
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCharacter) << static_cast<unsigned>(code);
    ASSERT_EQ(step.n_bytes, text.size());
    for (std::size_t n = 1; n < text.size(); ++n) {
      const Utf8Step cut = next_utf8(std::string_view(text).substr(0, n));
      ASSERT_EQ(cut.kind, Utf8Step::Kind::kIncomplete);
      ASSERT_EQ(cut.n_bytes, n);
    }
  }
}

TEST(Utf8, surrogates_overlong_forms_and_large_values_are_invalid) {
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5", "\xFF"}) {
    EXPECT_EQ(next_utf8(text).kind, Utf8Step::Kind::kInvalid);
    EXPECT_EQ(next_utf8(text).n_bytes, 1u);
  }
  EXPECT_EQ(next_utf8("\xE6\x9D.").n_bytes, 2u);  // two bytes that a third could have completed
}

TEST(Utf8, valid_prefix_ends_at_the_first_broken_character) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  for (std::size_t n = 0; n < 40; ++n) {  // across the eight-byte steps of the ASCII scan
    const std::string text(n, 'a');
    EXPECT_EQ(valid_utf8_prefix(text), n);
    EXPECT_EQ(valid_utf8_prefix(text + "\xFF" + text), n);
    EXPECT_EQ(valid_utf8_prefix(text + "é\xE6\x9D"), n + 2);
  }
}

TEST(Utf8, replacement_is_one_character_per_broken_run) {
  EXPECT_EQ(replace_invalid_utf8("a\xE6\x9D"
                                 "b\xFF\xFF"
                                 "é\xF0\x9F\x99"),
            "a\uFFFD"
            "b\uFFFD\uFFFDé\uFFFD");
}

}  // namespace
}  // namespace cairn::engine
