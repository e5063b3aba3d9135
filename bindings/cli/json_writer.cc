#include "bindings/cli/json_writer.h"

#include <charconv>

namespace cairn::cli {

JsonWriter& JsonWriter::begin_object() { return open('{'); }
JsonWriter& JsonWriter::end_object() { return close('}'); }
JsonWriter& JsonWriter::begin_array() { return open('['); }
JsonWriter& JsonWriter::end_array() { return close(']'); }

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  separate();
  quote(value);
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  separate();
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  separate();
  char digits[32];  // the shortest text that reads back as `value` fits
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  text_.append(digits, end);
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  separate();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  ++depth_;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  --depth_;
  if (!first_) new_line();
  text_ += bracket;
  first_ = false;
  return *this;
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!first_) text_ += ',';
  if (depth_ > 0) new_line();
  first_ = false;
}

void JsonWriter::new_line() {
  text_ += '\n';
  text_.append(static_cast<std::size_t>(2 * depth_), ' ');
}

void JsonWriter::quote(std::string_view value) {
  constexpr char kHex[] = "0123456789abcdef";
  text_ += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (byte < 0x20) {
      text_ += "\\u00";
      text_ += kHex[byte >> 4];
      text_ += kHex[byte & 15];
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

}  // namespace cairn::cli
