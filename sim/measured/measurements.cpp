#include "sim/measured/measurements.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "sim/measured/debug_log.hpp"
#include "sim/measured/formats.hpp"

namespace rackrail::sim::measured {

namespace {

struct Reader {
  Format format;
  bool (*is_so)(std::string_view content);
  Measurements (*read)(const std::filesystem::path& path, const std::string& content);
};

/// No measurements: what NCCL says of itself.
Measurements refuse_debug_log(const std::filesystem::path& path, const std::string&) {
  throw ConfigError(ErrorContext{path.string(), "", "a debug log of NCCL without measured times",
                                 "CSV, JSON lines or a log of nccl-tests; 'rackrail info FILE' "
                                 "shows what this log says"});
}

// The first that matches is taken.
constexpr Reader kReaders[] = {
    {Format::kNcclTestsLog, is_nccl_tests_log, read_nccl_tests_log},
    {Format::kNcclDebugLog, is_debug_log, refuse_debug_log},
    {Format::kJsonLines, is_json_lines, read_json_lines},
    {Format::kCsv, [](std::string_view) { return true; }, read_csv},
};

const Reader& reader_of(std::string_view content) {
  for (const Reader& reader : kReaders) {
    if (reader.is_so(content)) {
      return reader;
    }
  }
  return kReaders[std::size(kReaders) - 1];
}

/// The rows of an operation, one per line.
template <typename Take>
void each_line(const std::vector<Row>& rows, const Take& take) {
  std::size_t before = 0;
  for (const Row& row : rows) {
    if (!row.is_in_place || row.line != before) {
      take(row);
    }
    before = row.line;
  }
}

}  // namespace

void Place::fail(const std::string& found, const std::string& expected) const {
  throw ConfigError(ErrorContext{file, fmt::format("line {}", line), found, expected});
}

std::int64_t whole(std::string_view text, std::int64_t most, const Place& place) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
    place.fail(fmt::format("'{}'", text), fmt::format("a whole number from 1 to {}", most));
  }
  return value;
}

double positive(std::string_view text, const Place& place) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) ||
      !std::isfinite(value)) {
    place.fail(fmt::format("'{}'", text), "a time above 0");
  }
  return value;
}

void set_machine(nccl::Measured& one, std::int64_t ranks, std::int64_t nodes, const Place& place) {
  if (ranks % nodes != 0 || ranks < 2) {
    place.fail(fmt::format("{} GPUs on {} nodes", ranks, nodes),
               "at least two GPUs, as many on each node");
  }
  one.nodes = static_cast<std::size_t>(nodes);
  one.gpus_per_node = static_cast<std::size_t>(ranks / nodes);
}

void add_row(Measurements& result, Row row) {
  nccl::Measured& one = row.measurement;
  one.what =
      fmt::format("{}, {} x {} GPUs", to_string(row.operation), one.nodes, one.gpus_per_node);
  if (!one.hosts.empty()) {
    one.what += fmt::format(" on hosts {}", fmt::join(one.hosts, ";"));
  }
  result.rows.push_back(std::move(row));
}

std::vector<nccl::Measured> Measurements::all_reduces() const {
  std::vector<nccl::Measured> cases;
  each_line(rows, [&](const Row& row) {
    if (row.operation == Operation::kAllReduce) {
      cases.push_back(row.measurement);
    }
  });
  return cases;
}

std::map<Operation, std::size_t> Measurements::others() const {
  std::map<Operation, std::size_t> counts;
  each_line(rows, [&](const Row& row) {
    if (row.operation != Operation::kAllReduce) {
      ++counts[row.operation];
    }
  });
  return counts;
}

Format format_of(std::string_view content) { return reader_of(content).format; }

Measurements read_measurements(const std::filesystem::path& path) {
  const std::string content = read_file(path);
  Measurements result = reader_of(content).read(path, content);
  if (result.rows.empty() && result.unread_others == 0) {
    std::string found = "no measured collective";
    for (const std::string& note : result.notes) {
      found += "; " + note;
    }
    throw ConfigError(
        ErrorContext{path.string(), "", found, "CSV, JSON lines or a log of nccl-tests with rows"});
  }
  return result;
}

bool has_measurements(const std::filesystem::path& path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) {
    return false;
  }
  const std::string content = read_file(path);
  return is_nccl_tests_log(content) || is_debug_log(content) || is_csv(content);
}

}  // namespace rackrail::sim::measured
