// Results of a sweep as lines of JSON, and the file that they are kept in.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "explore/cells.hpp"
#include "explore/evaluate.hpp"

namespace rackrail::explore {

/// What became of one cell: figures or an error.
struct Row {
  std::size_t cell = 0;
  std::string digest;              ///< of the cell
  std::vector<FieldValue> varied;  ///< field and value
  std::optional<Figures> figures;  ///< none when it failed
  std::string error;               ///< one line; empty unless it failed
  double seconds = 0;              ///< that planning and simulating took
};

/// One line without its end:
/// {"cell": 3, "digest": "…", "varied": {"plan.local_batch": "8"}, "step_time_s": …, "bound_s": …,
///  "gap": …, "sync_share": …, "throughput": …, "goodput": …, "global_batch": …, "executions": …,
///  "executions_equal": …, "seconds": …}, or with "error" in place of the figures.
std::string to_line(const Row& row);
/// The reverse; none for text that is no row.
std::optional<Row> parse_line(const std::string& line);

/// A table with a line per row: cell, the varied fields, the figures, error. Quoted as RFC 4180
/// says where needed. Without what computing took, so that the same sweep gives the same bytes.
std::string to_csv(std::span<const Row> rows);

/// The rows of a file in its order; none when it does not exist.
///
/// A last line without its end is what a process that was killed leaves: `is_damaged` says that
/// there was one, and it is left out. Throws ConfigError, with the line, for any
/// other line that is no row.
struct RowFile {
  std::vector<Row> rows;
  bool is_damaged = false;
};
RowFile read_rows(const std::filesystem::path& path);

/// Replaces the file as a whole (write_file_atomically).
void write_rows(const std::filesystem::path& path, std::span<const Row> rows);

}  // namespace rackrail::explore
