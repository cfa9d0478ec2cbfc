// Measured collectives, as benchmarks write them.
//
// The format is told by the content (`format_of`). Each has a file of its own: `csv.cpp`,
// `json_lines.cpp`, `nccl_tests_log.cpp`; `debug_log.cpp` reads what NCCL says of itself, which has
// no times. A reader keeps every row it understands, of whatever operation; `all_reduces()` are
// those that the model of NCCL predicts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/measured/operation.hpp"
#include "sim/nccl/calibrate.hpp"

namespace rackrail::sim::measured {

enum class Format : std::uint8_t { kNcclTestsLog, kNcclDebugLog, kJsonLines, kCsv };

struct Row {
  std::size_t line = 0;  ///< of the file, from 1
  Operation operation = Operation::kAllReduce;
  bool is_in_place = false;    ///< the result replaces the input
  nccl::Measured measurement;  ///< its size as the program prints it: bytes of the larger buffer
};

struct Measurements {
  std::vector<Row> rows;           ///< an in-place row follows the out-of-place one of its line
  std::size_t unread_others = 0;   ///< rows of other operations that could not be read
  bool are_of_mscclpp = false;     ///< of its kernels, not of NCCL's
  bool has_logged_choice = false;  ///< a log says what NCCL itself chose for some of them
  std::vector<std::string> notes;  ///< what was inferred or left out, a sentence each

  /// One per line: out of place, or in place where the line has nothing else.
  std::vector<nccl::Measured> all_reduces() const;
  /// Lines of other operations.
  std::map<Operation, std::size_t> others() const;
};

/// By the content. What is no log and no JSON is taken for CSV.
Format format_of(std::string_view content);

/// Throws ConfigError with file and line for what it cannot take, and for a file without any row.
Measurements read_measurements(const std::filesystem::path& path);

/// Whether the file holds measurements or a log: NCCL's, or a CSV whose header has a size and a
/// time. False for what cannot be read.
bool has_measurements(const std::filesystem::path& path);

}  // namespace rackrail::sim::measured
