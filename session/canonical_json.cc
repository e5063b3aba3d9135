// A double holds every integer below 2^53: JSON libraries of scripting languages read 1.0 and write
// 1, read 1e2 and write 100. Longer integers are compared digit by digit, since some keep them.
#include "session/canonical_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

namespace cairn::session {
namespace {

using engine::JsonMember;
using engine::JsonValue;

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

std::string canonical_number(const std::string& text) {
  const bool is_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return text;
  const bool is_exact = std::abs(value) < kExactIntegers;
  if (is_integer && !is_exact) return text;
  std::array<char, 32> digits;
  const auto written =
      is_exact && value == std::trunc(value)
          ? std::to_chars(digits.begin(), digits.end(), static_cast<long long>(value))
          : std::to_chars(digits.begin(), digits.end(), value);
  return {digits.begin(), written.ptr};
}

std::string canonical_object(const JsonValue& object) {
  std::vector<const JsonMember*> members;
  for (const JsonMember& member : object.members) members.push_back(&member);
  std::ranges::sort(members, {}, &JsonMember::key);
  std::string text = "{";
  for (const JsonMember* member : members) {
    if (text.size() > 1) text += ',';
    text += engine::json_quoted(member->key) + ':' + canonical_json(member->value);
  }
  return text + '}';
}

std::string canonical_array(const JsonValue& array) {
  std::string text = "[";
  for (const JsonValue& item : array.items) {
    if (text.size() > 1) text += ',';
    text += canonical_json(item);
  }
  return text + ']';
}

}  // namespace

std::string canonical_json(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return value.boolean ? "true" : "false";
    case JsonValue::Kind::kNumber:
      return canonical_number(value.text);
    case JsonValue::Kind::kString:
      return engine::json_quoted(value.text);
    case JsonValue::Kind::kArray:
      return canonical_array(value);
    case JsonValue::Kind::kObject:
      return canonical_object(value);
  }
  return "null";
}

std::string canonical_json(std::string_view json) {
  const auto value = engine::parse_json(json);
  return value.ok() ? canonical_json(*value) : std::string(json);
}

}  // namespace cairn::session
