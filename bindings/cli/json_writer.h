// Writes one JSON value for --json. The library's own JSON package stays inside the library.
#ifndef CAIRN_BINDINGS_CLI_JSON_WRITER_H_
#define CAIRN_BINDINGS_CLI_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::cli {

// Append-only: begin and end calls have to pair, keys come only inside objects. Indents by two.
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view value);  // UTF-8
  JsonWriter& integer(std::int64_t value);
  JsonWriter& number(double value);  // finite; 17 significant digits at most
  JsonWriter& boolean(bool value);

  const std::string& text() const { return text_; }

 private:
  void separate();
  void new_line();
  void quote(std::string_view value);
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);

  std::string text_;
  int depth_ = 0;
  bool first_ = true;       // nothing yet in the innermost bracket
  bool after_key_ = false;  // the next value stands on the key's line
};

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_JSON_WRITER_H_
