// Text tables for people: columns as wide as their content, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace rackrail::cli {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as columns.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  /// With a line under the titles; every line ends with a newline and has no trailing spaces.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A table whose rows are printed as they come, so that columns are as wide as was said before; a
/// cell that is wider puts its row out of line.
class RowByRow {
 public:
  struct Column {
    std::string title;
    std::size_t width = 0;  ///< at least; the title fits anyway
    Align align = Align::kLeft;
  };
  explicit RowByRow(std::vector<Column> columns);

  /// Titles and the line under them, and a row of as many cells as columns; lines as in Table.
  std::string head() const;
  std::string row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

/// "12.3 %" of a share in 0..1.
std::string percent(double share);
/// "+3.2 %"; less than 0.05 % is +0.0, never -0.0.
std::string signed_percent(double share);

}  // namespace rackrail::cli
