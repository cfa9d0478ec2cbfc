#include "planner/batch/csv_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"

namespace rackrail::planner {

namespace {

std::vector<std::string> cut(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    cells.emplace_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return cells;
    }
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

CsvTable CsvTable::read(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

CsvTable CsvTable::parse(std::string_view text, const std::string& file) {
  CsvTable table;
  table.file_ = file;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.empty()) {
      continue;
    }
    std::vector<std::string> cells = cut(line);
    if (table.titles_.empty()) {
      table.titles_ = std::move(cells);
      continue;
    }
    if (cells.size() != table.titles_.size()) {
      throw ConfigError(ErrorContext{file, fmt::format("line {}", number),
                                     counted(std::ssize(cells), "cell"),
                                     fmt::format("{}, as many as titles", table.titles_.size())});
    }
    table.cells_.push_back(std::move(cells));
    table.lines_.push_back(number);
  }
  if (table.titles_.empty()) {
    throw ConfigError(ErrorContext{file, "", "nothing", "a CSV file with a line of titles"});
  }
  return table;
}

void CsvTable::require(std::initializer_list<std::string_view> titles) const {
  for (const std::string_view title : titles) {
    static_cast<void>(column(title));
  }
  if (cells_.empty()) {
    throw ConfigError(ErrorContext{file_, "", "no row below the titles", "at least one"});
  }
}

bool CsvTable::has(std::string_view title) const {
  return std::find(titles_.begin(), titles_.end(), title) != titles_.end();
}

std::size_t CsvTable::column(std::string_view title) const {
  const auto at = std::find(titles_.begin(), titles_.end(), title);
  if (at == titles_.end()) {
    throw ConfigError(ErrorContext{file_, "line 1",
                                   fmt::format("columns {}", fmt::join(titles_, ", ")),
                                   fmt::format("a column '{}'", title)});
  }
  return static_cast<std::size_t>(at - titles_.begin());
}

void CsvTable::fail(std::size_t row, std::string_view title, const std::string& expected) const {
  throw ConfigError(ErrorContext{file_, fmt::format("line {}, {}", lines_.at(row), title),
                                 "'" + text(row, title) + "'", expected});
}

const std::string& CsvTable::text(std::size_t row, std::string_view title) const {
  return cells_.at(row)[column(title)];
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

}  // namespace rackrail::planner
