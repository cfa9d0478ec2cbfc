// A small CSV file of numbers with a line of titles: what measurements come as.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::planner {

class CsvTable {
 public:
  /// Throws ConfigError with file and line for a file without titles and for rows of another width
  /// than them. Empty lines are skipped; blanks around cells are not part of them.
  static CsvTable read(const std::filesystem::path& path);
  /// The same for the text of such a file; `file` is for messages.
  static CsvTable parse(std::string_view text, const std::string& file);

  /// Throws ConfigError without these columns, or without any row.
  void require(std::initializer_list<std::string_view> titles) const;
  std::size_t rows() const { return cells_.size(); }
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
  std::vector<std::vector<std::string>> cells_;  // by row
  std::vector<std::size_t> lines_;               // of each row in the file
};

}  // namespace rackrail::planner
