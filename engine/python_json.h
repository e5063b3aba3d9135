// JSON with Python's semantics: what json.dumps(json.loads(x), ensure_ascii=False) prints. The
// prompt format shows tool schemas and arguments to the model this way, so every number has to
// keep its kind and its digits: 1.0 stays 1.0, 1e5 becomes 100000.0, a 30-digit integer is kept.
#ifndef CAIRN_ENGINE_PYTHON_JSON_H_
#define CAIRN_ENGINE_PYTHON_JSON_H_

#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

struct JsonMember;

// A plain value tree; owns everything below it. Depth is bounded by kMaxJsonDepth.
struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;                 // kString: the characters; kNumber: Python's spelling
  std::vector<JsonValue> items;     // kArray
  std::vector<JsonMember> members;  // kObject: keys are unique, in order of first appearance

  bool is(Kind k) const { return kind == k; }
  // The member's value; null if this is no object or has no such key. Borrowed.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);
  // Appends a member to an object; the key must not be there yet.
  void add(std::string key, JsonValue value);

  static JsonValue make_string(std::string text);
  static JsonValue make_bool(bool value);
  static JsonValue make_array();
  static JsonValue make_object();
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// "null", "boolean", "number", "string", "array", "object": for messages.
std::string_view json_kind_name(JsonValue::Kind kind);

inline constexpr int kMaxJsonDepth = 256;

// Strict JSON, UTF-8. A repeated key keeps its first place and its last value, as a Python dict.
// kInvalidArgument: malformed, invalid UTF-8, or nested deeper than kMaxJsonDepth.
Result<JsonValue> parse_json(std::string_view json);

// `, ` and `: ` separators, key order kept, non-ASCII raw.
std::string to_python_json(const JsonValue& value);

// Appends `text` as the inside of a JSON string literal: escapes the quote, the backslash and
// control characters only. Works piecewise: escaping parts equals escaping the whole.
void append_json_escaped(std::string_view text, std::string& out);
// A whole literal, quotes included.
std::string json_quoted(std::string_view text);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_PYTHON_JSON_H_
