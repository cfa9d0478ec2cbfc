// A table of nccl-tests or rccl-tests: its header says which columns there are, and in which order.
//
//     #                                                     out-of-place              in-place
//     #       size   count   type   redop   root     time   algbw   busbw #wrong    time …
//     #        (B)  (elements)                       (us)  (GB/s)  (GB/s)           (us) …
//          1048576  262144  float     sum     -1    810.9    1.29    2.51      0   801.2 …
//
// Versions differ: without root, without redop, `bytes N type op … res` with times in ms (1.x),
// more columns after each placement (per-iteration times), a time stamp at the end, one placement.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::sim::measured {

/// One placement of a row.
struct TableTime {
  bool is_in_place = false;
  double time = 0;              ///< in the unit of the table
  std::optional<double> algbw;  ///< GB/s
  std::optional<double> busbw;  ///< GB/s
  bool is_unchecked = false;    ///< its errors are "N/A"
  bool is_wrong = false;        ///< results were wrong
};

struct TableRow {
  std::size_t line = 0;
  double size = 0;  ///< bytes
  bool has_reduction = false;
  bool has_blank_reduction = false;  ///< none, where the header has a redop
  bool has_root = false;
  std::vector<TableTime> times;  ///< at most one of each placement
};

class TableHeader {
 public:
  /// None for lines that are no header.
  static std::optional<TableHeader> parse(std::string_view line);

  /// None for what is no row of this table. A row may end early, and lack redop and root.
  std::optional<TableRow> row(std::string_view line, std::size_t number) const;

  /// Whether the first time is in place: the line above the header says "in-place" only.
  bool is_in_place_only = false;
  bool is_cpu_time() const { return is_cpu_time_; }
  /// nccl-tests 1.x, whose times are in ms.
  bool is_of_version_1() const { return is_of_version_1_; }

 private:
  std::size_t column(std::string_view name) const;

  std::vector<std::string> names_;
  bool is_cpu_time_ = false;
  bool is_of_version_1_ = false;
};

/// Seconds of the unit of time in a line of units, "(B) (elements) (us) (GB/s) …"; none elsewhere.
std::optional<double> unit_of_time(std::string_view line);

}  // namespace rackrail::sim::measured
