// CSV with one of two headers. A table has no device class (its times are those of whatever device
// runs it) and describes the step of one sample.
//  - `tensor,elements,ready_gap_us`: the tensors in the order in which their gradients become
//    ready; forward is taken as half of backward.
//  - `name,parameters,bytes_per_parameter,forward_us,backward_us`: layers in forward order, which
//    are turned round. Gradients move as FP32 here, so parameters of another width count as the
//    FP32 elements of the same size; the time of a layer without parameters goes to the next
//    gradient.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "plan/workloads/formats.hpp"

namespace rackrail::plan {
namespace {

std::string header_of(const CsvLine& line) { return fmt::format("{}", fmt::join(line.cells, ",")); }

[[noreturn]] void fail(const std::string& file, std::size_t line, std::string found,
                       std::string expected) {
  throw ConfigError(ErrorContext{.file = file,
                                 .where = fmt::format("line {}", line),
                                 .found = std::move(found),
                                 .expected = std::move(expected)});
}

/// The cells of one line as what their column says.
class Cells {
 public:
  Cells(const std::string& file, const CsvLine& line) : file_(file), line_(line) {}

  std::string name(std::size_t column) const {
    const std::string& cell = line_.cells[column];
    if (cell.empty()) {
      fail(file_, line_.number, "an empty name", "a name");
    }
    return cell;
  }

  std::int64_t count(std::size_t column, std::string_view what, std::int64_t least,
                     std::int64_t most) const {
    const std::string& cell = line_.cells[column];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || end != cell.data() + cell.size() || value < least || value > most) {
      fail(file_, line_.number, fmt::format("{} '{}'", what, cell),
           fmt::format("a whole number from {} to {}", least, most));
    }
    return value;
  }

  Duration microseconds(std::size_t column, std::string_view what) const {
    const std::string& cell = line_.cells[column];
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || end != cell.data() + cell.size() ||
        !(value >= 0 && value * 1e-6 <= kLongestTime.seconds())) {
      fail(file_, line_.number, fmt::format("{} '{}'", what, cell),
           fmt::format("a number of microseconds, from 0 to {}", to_string(kLongestTime)));
    }
    return Duration(std::llround(value * 1e6));
  }

 private:
  const std::string& file_;
  const CsvLine& line_;
};

void read_profile(const std::vector<CsvLine>& lines, const std::string& file, Workload& workload) {
  for (const CsvLine& line : lines) {
    const Cells cells(file, line);
    workload.tensors.push_back({.name = cells.name(0),
                                .elements = cells.count(1, "elements", 1, kLargestTensor),
                                .ready_gap = cells.microseconds(2, "ready gap")});
  }
  // Backward computes two matrix products for each one of forward.
  workload.forward = scaled(workload.backward(), 0.5);
}

constexpr std::int64_t kFloatWidth = 4;

void read_layers(const std::vector<CsvLine>& lines, const std::string& file, Workload& workload) {
  Duration gap;
  std::int64_t others = 0;  // bytes of other widths
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const Cells cells(file, *line);
    const std::string name = cells.name(0);
    const std::int64_t parameters = cells.count(1, "parameters", 0, kLargestTensor / 8);
    const std::int64_t width = cells.count(2, "bytes per parameter", 1, 8);
    workload.forward += cells.microseconds(3, "forward time");
    gap += cells.microseconds(4, "backward time");
    if (parameters > 0) {
      workload.tensors.push_back(
          {.name = name, .elements = elements_of_width(parameters, width), .ready_gap = gap});
      gap = Duration();
      others += width == kFloatWidth ? 0 : parameters * width;
    }
  }
  workload.backward_tail = gap;
  if (others > 0) {
    workload.notes.push_back(width_note(file, Bytes(others)));
  }
}

}  // namespace

std::string width_note(const std::string& file, Bytes bytes) {
  return fmt::format(
      "{}: {} of gradients are not of 4 bytes per parameter and count as FP32 of the same size, "
      "which codecs shrink further than they could (fp16 to half); --error-budget 0 uses none",
      file, to_string(bytes));
}

bool looks_like_workload_csv(std::string_view content) {
  const std::vector<CsvLine> lines = csv_lines(content.substr(0, 64 * 1024));
  if (lines.empty()) {
    return false;
  }
  // A header with a typing error is one, too, so that the error names it.
  const std::string header = header_of(lines.front());
  return lines.front().cells.size() > 1 && header.find_first_of(":{[") == std::string::npos;
}

Workload parse_workload_csv(std::string_view content, const std::string& file,
                            const std::string& name) {
  std::vector<CsvLine> lines = csv_lines(content);
  if (lines.size() < 2) {
    fail(file, lines.empty() ? 1 : lines.front().number, "no tensor",
         "a header and at least one line");
  }
  if (lines.size() > kMostTensors) {
    fail(file, lines[kMostTensors].number, "one tensor more",
         fmt::format("fewer than {} tensors", kMostTensors));
  }
  const std::string header = header_of(lines.front());
  const bool is_profile = header == kProfileHeader;
  if (!is_profile && header != kLayerHeader) {
    fail(file, lines.front().number, fmt::format("header '{}'", header),
         fmt::format("'{}' or '{}'", kProfileHeader, kLayerHeader));
  }
  const std::size_t columns = lines.front().cells.size();
  lines.erase(lines.begin());
  for (const CsvLine& line : lines) {
    if (line.cells.size() != columns) {
      fail(file, line.number, counted(std::ssize(line.cells), "cell"),
           fmt::format("{}: {}", columns, is_profile ? kProfileHeader : kLayerHeader));
    }
  }
  Workload workload;
  workload.name = name;
  workload.source = fmt::format("read from {}.csv", name);
  (is_profile ? read_profile : read_layers)(lines, file, workload);
  if (workload.tensors.empty()) {
    fail(file, lines.back().number, "no layer with parameters", "at least one");
  }
  workload.notes.push_back(fmt::format(
      "{}: a table has neither a batch nor a device: its times are taken for those of one "
      "sample, on every device; a YAML workload can say both",
      file));
  return workload;
}

namespace {

class CsvReader : public WorkloadReader {
 public:
  std::string_view format() const override { return "CSV of gradients or layers"; }
  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    return looks_like_workload_csv(content);
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& /*options*/) const override {
    return parse_workload_csv(content, path.string(), stem_of(path));
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_csv_reader() { return std::make_unique<CsvReader>(); }

}  // namespace rackrail::plan
