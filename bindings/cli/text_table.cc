#include "bindings/cli/text_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "bindings/cli/terminal_text.h"

namespace cairn::cli {
namespace {

std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                 const std::vector<TextTable::Column>& columns, int indent) {
  std::string text(static_cast<std::size_t>(indent), ' ');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += "  ";
    const std::string padding(widths[i] - width_of(cells[i]), ' ');
    text += columns[i].align == Align::kRight ? padding + cells[i] : cells[i] + padding;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

void TextTable::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(int indent) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = width_of(titles[i]);
    for (const auto& row : rows_) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
  }
  std::string text;
  const bool titled =
      std::any_of(titles.begin(), titles.end(), [](const auto& t) { return !t.empty(); });
  if (titled) text += line(titles, widths, columns_, indent);
  for (const auto& row : rows_) text += line(row, widths, columns_, indent);
  return text;
}

std::string with_commas(std::int64_t n) {
  std::string digits = std::to_string(n);
  const std::size_t first = n < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string plain_number(double x) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, x);
  return {digits, end};
}

std::string in_binary_units(std::int64_t n_bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = static_cast<double>(n_bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", amount, kUnits[unit]);
  return text;
}

}  // namespace cairn::cli
