#include "engine/python_json.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::engine {
namespace {

std::string reprint(std::string_view json) {
  const auto value = parse_json(json);
  return value.ok() ? to_python_json(*value) : "error: " + value.status().to_string();
}

// Expected texts are the output of CPython 3.11's json.dumps(json.loads(x), ensure_ascii=False).
TEST(PythonJson, numbers_are_printed_as_python_prints_them) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0", "0"},
      {"-0", "0"},
      {"-1", "-1"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"1e5", "100000.0"},
      {"1E5", "100000.0"},
      {"1e22", "1e+22"},
      {"1e16", "1e+16"},
      {"1e15", "1000000000000000.0"},
      {"123456789012345678", "123456789012345678"},
      {"18446744073709551616", "18446744073709551616"},
      {"-9223372036854775809", "-9223372036854775809"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"1.5", "1.5"},
      {"0.1", "0.1"},
      {"1e-4", "0.0001"},
      {"1e-5", "1e-05"},
      {"0.00001234", "1.234e-05"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1e-400", "0.0"},
      {"5e-324", "5e-324"},
      {"2.2250738585072014e-308", "2.2250738585072014e-308"},
      {"123456789.123456789", "123456789.12345679"},
      {"1.10", "1.1"},
      {"100.0e-2", "1.0"},
      {"12345678901234567890.0", "1.2345678901234567e+19"},
      {"9007199254740993.0", "9007199254740992.0"},
      {"1e0", "1.0"},
      {"0e5", "0.0"},
      {"3.14159265358979323846264338327950288", "3.141592653589793"},
      {"0." + std::string(400, '0') + "1", "0.0"},
      {"0." + std::string(400, '0') + "1e500", "1e+99"},
  };
  for (const auto& [json, expected] : cases) {
    EXPECT_EQ(reprint(json), expected) << json;
    EXPECT_EQ(reprint("[" + json + "]"), "[" + expected + "]") << json;
  }
}

TEST(PythonJson, a_number_beyond_doubles_keeps_its_literal) {
  EXPECT_EQ(reprint("[1e400, -1e400]"), "[1e400, -1e400]");
  EXPECT_EQ(reprint("1" + std::string(400, '0') + ".0"), "1" + std::string(400, '0') + ".0");
}

TEST(PythonJson, separators_order_and_escapes_are_pythons) {
  EXPECT_EQ(reprint(R"( {"b":1,"a":[true,false,null,{}],"c":[]} )"),
            R"({"b": 1, "a": [true, false, null, {}], "c": []})");
  EXPECT_EQ(reprint(R"("é\u00e9\ud83d\ude00\/\u0001\u001f\u007f\n\r\t\b\f\"\\")"),
            "\"éé😀/\\u0001\\u001f\x7f\\n\\r\\t\\b\\f\\\"\\\\\"");
}

TEST(PythonJson, a_repeated_key_keeps_its_first_place_and_last_value) {
  EXPECT_EQ(reprint(R"({"a":1,"b":2,"a":3,"c":4,"b":5})"), R"({"a": 3, "b": 5, "c": 4})");
}

TEST(PythonJson, printing_is_stable) {
  for (const std::string_view json :
       {R"({"x": [1e5, 1e22, -0.0, 12345678901234567890123]})", R"(["\u0000", "ｕ", 1e999])"}) {
    EXPECT_EQ(reprint(reprint(json)), reprint(json));
  }
}

TEST(PythonJson, malformed_text_is_an_error_with_its_place) {
  for (const std::string_view json : {"", " ", "{", "[1,]", "{\"a\":}", "01", "1.", "nan", "NaN",
                                      "'a'", "\"a", "{} x", "\"\xff\"", "\"\\ud800\"", "\"\n\""}) {
    const auto value = parse_json(json);
    ASSERT_FALSE(value.ok()) << json;
    EXPECT_EQ(value.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(value.status().message().find("at byte"), std::string_view::npos);
  }
}

TEST(PythonJson, depth_is_bounded) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)).ok());
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth + 1)).ok());
  EXPECT_FALSE(parse_json(std::string(100000, '[')).ok());
}

TEST(PythonJson, escaping_piecewise_equals_escaping_the_whole) {
  const std::string text = "a\"b\\c\n\x01é😀";
  std::string pieces;
  for (const char c : text) append_json_escaped(std::string_view(&c, 1), pieces);
  EXPECT_EQ("\"" + pieces + "\"", json_quoted(text));
}

}  // namespace
}  // namespace cairn::engine
