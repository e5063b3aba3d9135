// Columns for a terminal.
#ifndef CAIRN_BINDINGS_CLI_TEXT_TABLE_H_
#define CAIRN_BINDINGS_CLI_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cairn::cli {

enum class Align { kLeft, kRight };

// Every cell is padded to the widest of its column; two spaces between columns.
class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add_row(std::vector<std::string> cells);  // one per column
  // Title line, then the rows, each indented by `indent` spaces, without trailing spaces. The title
  // line is left out if all titles are empty.
  std::string text(int indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string with_commas(std::int64_t n);            // "1,048,576"
std::string plain_number(double x);                 // shortest text: "178", "8.5"
std::string in_binary_units(std::int64_t n_bytes);  // "475.24 GiB"

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_TEXT_TABLE_H_
