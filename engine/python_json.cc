// Parsing goes through Boost.JSON's streaming parser, whose number callbacks carry the characters
// of the number: its own value type would round integers beyond 64 bits to doubles. Numbers are
// turned into Python's spelling at once, so a JsonValue needs no numeric fields.
#include "engine/python_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <new>
#include <unordered_map>
#include <utility>

namespace cairn::engine {
namespace {

namespace json = boost::json;

// Python prints floats with the fewest digits that read back to the same double, in scientific
// notation when the decimal exponent is below -4 or at least 16.
constexpr int kMinFixedExponent = -4;
constexpr int kMaxFixedExponent = 16;

bool is_integer_literal(std::string_view number) {
  return number.find_first_of(".eE") == std::string_view::npos;
}

// Whether a literal that fits no double is too large rather than too small: the sign of the decimal
// exponent of its first non-zero digit tells.
bool overflows(std::string_view number) {
  const std::size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view mantissa = number.substr(0, e);
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  const std::size_t leading = mantissa.find_first_of("123456789");
  long long exponent = 0;
  if (e < number.size()) {
    const char* begin = number.data() + e + (number.substr(e + 1, 1) == "+" ? 2 : 1);
    std::from_chars(begin, number.data() + number.size(), exponent);
  }
  return exponent + static_cast<long long>(point) - static_cast<long long>(leading) > 0;
}

std::string python_float(double value) {
  char buffer[64];
  const auto written =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(written.ptr - buffer));

  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  digits.erase(1, digits.size() > 1 ? 1 : 0);  // the point
  const char* exponent_begin = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  int exponent = 0;
  std::from_chars(exponent_begin, text.data() + text.size(), exponent);

  if (exponent < kMinFixedExponent || exponent >= kMaxFixedExponent) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string magnitude = std::to_string(std::abs(exponent));
    out += exponent < 0 ? "e-" : "e+";
    return out + (magnitude.size() < 2 ? "0" : "") + magnitude;
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  const auto n_integer_digits = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= n_integer_digits) {
    return out + digits + std::string(n_integer_digits - digits.size(), '0') + ".0";
  }
  return out + digits.substr(0, n_integer_digits) + "." + digits.substr(n_integer_digits);
}

// Python prints Infinity for a literal beyond the range of doubles, which is no JSON: we keep the
// literal, so that what we print can be read again.
std::string python_number(std::string_view literal) {
  if (is_integer_literal(literal)) return literal == "-0" ? "0" : std::string(literal);
  double value = 0;
  const auto read = std::from_chars(literal.data(), literal.data() + literal.size(), value);
  if (read.ec != std::errc::result_out_of_range) return python_float(value);
  if (overflows(literal)) return std::string(literal);
  return literal.front() == '-' ? "-0.0" : "0.0";
}

// Gives each repeated key its last value at its first place.
void merge_repeated_keys(std::vector<JsonMember>& members) {
  std::unordered_map<std::string, std::size_t> first;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto [place, is_new] = first.try_emplace(members[i].key, kept);
    if (!is_new) {
      members[place->second].value = std::move(members[i].value);
    } else {
      if (kept != i) members[kept] = std::move(members[i]);
      ++kept;
    }
  }
  members.erase(members.begin() + static_cast<std::ptrdiff_t>(kept), members.end());
}

// Builds the tree from the parser's callbacks (names and signatures are Boost's). The open
// containers form a stack; a finished value goes into the one on top.
struct TreeBuilder {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  struct Open {
    JsonValue container;
    std::string key;  // of the value that comes next
  };
  std::vector<Open> stack;
  std::string part;  // the string, key or number so far
  JsonValue root;

  bool put(JsonValue value) {
    if (stack.empty()) {
      root = std::move(value);
    } else if (Open& top = stack.back(); top.container.is(JsonValue::Kind::kArray)) {
      top.container.items.push_back(std::move(value));
    } else {
      top.container.members.push_back({std::move(top.key), std::move(value)});
    }
    return true;
  }
  bool open(JsonValue container) {
    stack.push_back({std::move(container), {}});
    return true;
  }
  bool close() {
    JsonValue done = std::move(stack.back().container);
    stack.pop_back();
    merge_repeated_keys(done.members);
    return put(std::move(done));
  }
  bool add_part(json::string_view text) {
    part.append(text.data(), text.size());
    return true;
  }
  std::string take_part(json::string_view text) {
    add_part(text);
    return std::exchange(part, {});
  }
  bool put_number(json::string_view text) {
    JsonValue number;
    number.kind = JsonValue::Kind::kNumber;
    number.text = python_number(take_part(text));
    return put(std::move(number));
  }

  using Error = json::error_code;
  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) { return open(JsonValue::make_object()); }
  bool on_object_end(std::size_t, Error&) { return close(); }
  bool on_array_begin(Error&) { return open(JsonValue::make_array()); }
  bool on_array_end(std::size_t, Error&) { return close(); }
  bool on_key_part(json::string_view text, std::size_t, Error&) { return add_part(text); }
  bool on_key(json::string_view text, std::size_t, Error&) {
    stack.back().key = take_part(text);
    return true;
  }
  bool on_string_part(json::string_view text, std::size_t, Error&) { return add_part(text); }
  bool on_string(json::string_view text, std::size_t, Error&) {
    return put(JsonValue::make_string(take_part(text)));
  }
  bool on_number_part(json::string_view text, Error&) { return add_part(text); }
  bool on_int64(std::int64_t, json::string_view text, Error&) { return put_number(text); }
  bool on_uint64(std::uint64_t, json::string_view text, Error&) { return put_number(text); }
  bool on_double(double, json::string_view text, Error&) { return put_number(text); }
  bool on_bool(bool value, Error&) { return put(JsonValue::make_bool(value)); }
  bool on_null(Error&) { return put({}); }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }
};

void append_python_json(const JsonValue& value, std::string& out) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      out += "null";
      return;
    case JsonValue::Kind::kBool:
      out += value.boolean ? "true" : "false";
      return;
    case JsonValue::Kind::kNumber:
      out += value.text;
      return;
    case JsonValue::Kind::kString:
      out += json_quoted(value.text);
      return;
    case JsonValue::Kind::kArray: {
      out += '[';
      std::string_view separator;
      for (const JsonValue& item : value.items) {
        out += std::exchange(separator, ", ");
        append_python_json(item, out);
      }
      out += ']';
      return;
    }
    case JsonValue::Kind::kObject: {
      out += '{';
      std::string_view separator;
      for (const JsonMember& member : value.members) {
        out += std::exchange(separator, ", ");
        out += json_quoted(member.key);
        out += ": ";
        append_python_json(member.value, out);
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

JsonValue* JsonValue::find(std::string_view key) {
  return const_cast<JsonValue*>(std::as_const(*this).find(key));
}

void JsonValue::add(std::string key, JsonValue value) {
  members.push_back({std::move(key), std::move(value)});
}

JsonValue JsonValue::make_string(std::string text) {
  JsonValue value;
  value.kind = Kind::kString;
  value.text = std::move(text);
  return value;
}

JsonValue JsonValue::make_bool(bool boolean) {
  JsonValue value;
  value.kind = Kind::kBool;
  value.boolean = boolean;
  return value;
}

JsonValue JsonValue::make_array() {
  JsonValue value;
  value.kind = Kind::kArray;
  return value;
}

JsonValue JsonValue::make_object() {
  JsonValue value;
  value.kind = Kind::kObject;
  return value;
}

std::string_view json_kind_name(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return "boolean";
    case JsonValue::Kind::kNumber:
      return "number";
    case JsonValue::Kind::kString:
      return "string";
    case JsonValue::Kind::kArray:
      return "array";
    case JsonValue::Kind::kObject:
      return "object";
  }
  return "value";
}

Result<JsonValue> parse_json(std::string_view text) {
  // What is thrown, for want of memory, is not caught here: a caller that takes a text for
  // something else where it is not JSON must not do so for that.
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::basic_parser<TreeBuilder> parser(options);
  json::error_code error;
  const std::size_t n_read = parser.write_some(false, text.data(), text.size(), error);
  if (!error && n_read < text.size()) error = json::error::extra_data;
  if (error) {
    return invalid_argument("JSON: " + error.message() + " at byte " + std::to_string(n_read));
  }
  return std::move(parser.handler().root);
}

std::string to_python_json(const JsonValue& value) {
  std::string out;
  append_python_json(value, out);
  return out;
}

void append_json_escaped(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) {
          out += c;
        } else {
          out += "\\u00";
          out += kHex[(c >> 4) & 0xF];
          out += kHex[c & 0xF];
        }
    }
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(text, out);
  out += '"';
  return out;
}

}  // namespace cairn::engine
