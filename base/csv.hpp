// CSV: lines of cells between commas. Blanks around cells are not part of them. A cell may be in
// double quotes: in these commas and blanks are text, and two quotes are one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail {

std::vector<std::string> csv_cells(std::string_view line);

struct CsvLine {
  std::size_t number = 0;  ///< in the file, from 1
  std::vector<std::string> cells;
};

/// All but empty lines and comments (#).
std::vector<CsvLine> csv_lines(std::string_view content);

/// A small file of numbers with a line of titles: what measurements come as.
class CsvTable {
 public:
  /// Throws ConfigError with file and line for a file without titles and for rows of another width
  /// than them.
  static CsvTable read(const std::filesystem::path& path);

  /// Throws ConfigError without these columns, or without any row.
  void require(std::initializer_list<std::string_view> titles) const;
  std::size_t rows() const { return rows_.size(); }
  bool has(std::string_view title) const;
  /// Throw ConfigError naming line and column where there is no such column, or the cell is no
  /// finite number above 0, or no whole number from 1 to `most`.
  const std::string& text(std::size_t row, std::string_view title) const;
  double positive(std::size_t row, std::string_view title) const;
  std::int64_t whole(std::size_t row, std::string_view title, std::int64_t most) const;
  /// For complaints about a cell whose text is wrong for another reason.
  [[noreturn]] void fail(std::size_t row, std::string_view title,
                         const std::string& expected) const;

 private:
  std::size_t column(std::string_view title) const;

  std::string file_;
  std::vector<std::string> titles_;
  std::vector<CsvLine> rows_;
};

}  // namespace rackrail
