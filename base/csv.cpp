#include "base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"

namespace rackrail {

std::vector<std::string> csv_cells(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    std::string cell;
    std::string_view rest = trimmed(line);
    if (rest.starts_with('"')) {
      std::size_t i = 1;
      for (; i < rest.size() && (rest[i] != '"' || rest.substr(i, 2) == "\"\""); ++i) {
        cell += rest[i];
        if (rest[i] == '"') ++i;
      }
      rest.remove_prefix(std::min(rest.size(), i + 1));
    }
    const std::size_t comma = rest.find(',');
    cell += trimmed(rest.substr(0, comma));
    cells.push_back(std::move(cell));
    if (comma == std::string_view::npos) {
      return cells;
    }
    line = rest.substr(comma + 1);
  }
}

std::vector<CsvLine> csv_lines(std::string_view content) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (content.starts_with(kByteOrderMark)) {
    content.remove_prefix(kByteOrderMark.size());
  }
  std::vector<CsvLine> lines;
  for (std::size_t number = 1; !content.empty(); ++number) {
    const std::size_t end = content.find('\n');
    const std::string_view text = trimmed(content.substr(0, end));
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    if (!text.empty() && text.front() != '#') {
      lines.push_back({number, csv_cells(text)});
    }
  }
  return lines;
}

CsvTable CsvTable::read(const std::filesystem::path& path) {
  CsvTable table;
  table.file_ = path.string();
  table.rows_ = csv_lines(read_file(path));
  if (table.rows_.empty()) {
    throw ConfigError(ErrorContext{table.file_, "", "nothing", "a CSV file with a line of titles"});
  }
  table.titles_ = std::move(table.rows_.front().cells);
  table.rows_.erase(table.rows_.begin());
  for (const CsvLine& row : table.rows_) {
    if (row.cells.size() != table.titles_.size()) {
      throw ConfigError(ErrorContext{table.file_, fmt::format("line {}", row.number),
                                     counted(std::ssize(row.cells), "cell"),
                                     fmt::format("{}, as many as titles", table.titles_.size())});
    }
  }
  return table;
}

void CsvTable::require(std::initializer_list<std::string_view> titles) const {
  for (const std::string_view title : titles) {
    static_cast<void>(column(title));
  }
  if (rows_.empty()) {
    throw ConfigError(ErrorContext{file_, "", "no row below the titles", "at least one"});
  }
}

bool CsvTable::has(std::string_view title) const {
  return std::ranges::find(titles_, title) != titles_.end();
}

std::size_t CsvTable::column(std::string_view title) const {
  const auto at = std::ranges::find(titles_, title);
  if (at == titles_.end()) {
    throw ConfigError(ErrorContext{file_, "line 1",
                                   fmt::format("columns {}", fmt::join(titles_, ", ")),
                                   fmt::format("a column '{}'", title)});
  }
  return static_cast<std::size_t>(at - titles_.begin());
}

void CsvTable::fail(std::size_t row, std::string_view title, const std::string& expected) const {
  throw ConfigError(ErrorContext{file_, fmt::format("line {}, {}", rows_.at(row).number, title),
                                 "'" + text(row, title) + "'", expected});
}

const std::string& CsvTable::text(std::size_t row, std::string_view title) const {
  return rows_.at(row).cells[column(title)];
}

double CsvTable::positive(std::size_t row, std::string_view title) const {
  const std::string& cell = text(row, title);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !(value > 0) ||
      !std::isfinite(value)) {
    fail(row, title, "a number above 0");
  }
  return value;
}

std::int64_t CsvTable::whole(std::size_t row, std::string_view title, std::int64_t most) const {
  const std::string& cell = text(row, title);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || value < 1 || value > most) {
    fail(row, title, fmt::format("a whole number from 1 to {}", most));
  }
  return value;
}

}  // namespace rackrail
