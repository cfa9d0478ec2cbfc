#include "cli/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"

namespace rackrail::cli {

namespace {

using sim::nccl::Algorithm;
using sim::nccl::Measured;
using sim::nccl::Protocol;

constexpr double kNano = 1e-9;
constexpr double kMicro = 1e-6;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U;
constexpr std::int64_t kMostRanks = 1 << 20;

/// Where a row is, for complaints.
struct Place {
  std::string file;
  std::size_t line = 0;

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw ConfigError(ErrorContext{file, fmt::format("line {}", line), found, expected});
  }
};

/// Lower case without anything but letters and digits: "NVLSTree", "nvls-tree" → "nvlstree".
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

std::int64_t whole(const std::string& text, std::int64_t most, const Place& place) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
    place.fail("'" + text + "'", fmt::format("a whole number from 1 to {}", most));
  }
  return value;
}

double positive(const std::string& text, const Place& place) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) ||
      !std::isfinite(value)) {
    place.fail("'" + text + "'", "a time above 0");
  }
  return value;
}

bool is_all_reduce(const std::string& name) { return plain(name) == "allreduce"; }

void set_machine(Measured& one, std::int64_t ranks, std::int64_t nodes, const Place& place) {
  if (ranks % nodes != 0 || ranks < 2) {
    place.fail(fmt::format("{} GPUs on {} nodes", ranks, nodes),
               "at least two GPUs, as many on each node");
  }
  one.nodes = static_cast<std::size_t>(nodes);
  one.gpus_per_node = static_cast<std::size_t>(ranks / nodes);
}

void add_case(Measurements& result, Measured one) {
  one.what = fmt::format("all-reduce, {} x {} GPUs", one.nodes, one.gpus_per_node);
  if (!one.hosts.empty()) {
    one.what += fmt::format(" on hosts {}", fmt::join(one.hosts, ";"));
  }
  result.cases.push_back(std::move(one));
}

/// The GPUs that the file's name speaks of ("…-4gpu.csv"), if it does.
std::optional<std::int64_t> gpus_in_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::size_t at = name.rfind("gpu");
  if (at == std::string::npos) {
    return std::nullopt;
  }
  std::size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) {
    --begin;
  }
  if (begin == at || at - begin > 6) {
    return std::nullopt;
  }
  return std::stoll(name.substr(begin, at - begin));
}

constexpr std::initializer_list<const char*> kSizeColumns = {"sizebytes", "sizeb", "bytes", "size"};
constexpr std::pair<const char*, double> kTimeColumns[] = {
    {"timeus", kMicro}, {"timens", kNano}, {"times", 1.0}, {"timems", 1e-3}};

class CsvReader {
 public:
  CsvReader(const std::filesystem::path& path, const std::vector<std::string>& header, Place place)
      : gpus_in_name_(gpus_in_name(path)) {
    for (std::size_t i = 0; i < header.size(); ++i) {
      columns_.try_emplace(plain(header[i]), i);  // the first of equal names: out of place
    }
    size_ = first_of(kSizeColumns);
    for (const auto& [name, unit] : kTimeColumns) {
      if (!time_ && columns_.contains(name)) {
        time_ = columns_.at(name);
        unit_ = unit;
      }
    }
    if (!size_ || !time_) {
      place.fail("a header without " + std::string(size_ ? "time" : "size"),
                 "size_bytes and time_us (or time(ns), time_s)");
    }
    gpus_ = first_of({"gpus", "ranks"});
    nodes_ = first_of({"nodes", "hosts"});
    collective_ = first_of({"op", "collective"});
    algorithm_ = first_of({"algo", "algorithm"});
    protocol_ = first_of({"proto", "protocol"});
    placement_ = first_of({"placement"});
    if (!gpus_ && !gpus_in_name_) {
      place.fail("no column 'gpus'", "one, or a file name that ends in the number: -4gpu.csv");
    }
  }

  void read(const std::vector<std::string>& cells, const Place& place, Measurements& result) const {
    const auto cell = [&](std::optional<std::size_t> column) {
      if (column && *column >= cells.size()) {
        place.fail(counted(std::ssize(cells), "cell"), "as many as the header has");
      }
      return column ? cells[*column] : std::string();
    };
    if (collective_ && !is_all_reduce(cell(collective_))) {
      ++result.others;
      return;
    }
    Measured one;
    one.size = Bytes(whole(cell(size_), kMostBytes, place));
    one.seconds = positive(cell(time_), place) * unit_;
    try {
      one.choice = parse_choice(cell(algorithm_), cell(protocol_));
    } catch (const ConfigError& error) {
      place.fail(error.context().found, error.context().expected);
    }
    set_machine(one, gpus_ ? whole(cell(gpus_), kMostRanks, place) : *gpus_in_name_,
                nodes_ ? whole(cell(nodes_), kMostRanks, place) : 1, place);
    one.hosts = host_numbers(cell(placement_), one.nodes, place);
    add_case(result, std::move(one));
  }

 private:
  /// "0 4" or "0;4": as many different numbers as nodes; none for an empty cell.
  static std::vector<std::size_t> host_numbers(std::string text, std::size_t nodes,
                                               const Place& place) {
    std::replace(text.begin(), text.end(), ';', ' ');
    std::istringstream words(text);
    std::vector<std::size_t> hosts;
    for (std::string word; words >> word;) {
      hosts.push_back(word == "0" ? 0 : static_cast<std::size_t>(whole(word, kMostRanks, place)));
    }
    const std::set<std::size_t> different(hosts.begin(), hosts.end());
    if (!hosts.empty() && (hosts.size() != nodes || different.size() != nodes)) {
      place.fail("'" + text + "'", fmt::format("{} different host numbers, from 0", nodes));
    }
    return hosts;
  }

  std::optional<std::size_t> first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const auto found = columns_.find(name);
      if (found != columns_.end()) {
        return found->second;
      }
    }
    return std::nullopt;
  }

  std::map<std::string, std::size_t> columns_;
  std::optional<std::int64_t> gpus_in_name_;
  std::optional<std::size_t> size_, time_, gpus_, nodes_, collective_, algorithm_, protocol_,
      placement_;
  double unit_ = kMicro;
};

void read_json_line(const std::string& line, const Place& place, Measurements& result) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object()) {
    place.fail("what is not a JSON object", "one object per line");
  }
  const auto number = [&](const char* key) {
    const auto found = row.find(key);
    if (found == row.end() || !found->is_number() || !(found->get<double>() > 0)) {
      place.fail(fmt::format("no number above 0 for '{}'", key),
                 "name, ranks, ranksPerNode, size, time");
    }
    return found->get<double>();
  };
  const auto count = [&](const char* key, std::int64_t most) {
    const double value = number(key);
    if (!(value <= static_cast<double>(most)) || value != std::floor(value)) {
      place.fail(fmt::format("{} {:g}", key, value),
                 fmt::format("a whole number from 1 to {}", most));
    }
    return static_cast<std::int64_t>(value);
  };
  const auto name = row.find("name");
  if (name == row.end() || !name->is_string()) {
    place.fail("no 'name'", "name, ranks, ranksPerNode, size, time");
  }
  if (!is_all_reduce(name->get<std::string>())) {
    ++result.others;
    return;
  }
  Measured one;
  const std::int64_t ranks = count("ranks", kMostRanks);
  const std::int64_t per_node = count("ranksPerNode", kMostRanks);
  if (ranks % per_node != 0) {
    place.fail(fmt::format("{} ranks, {} per node", ranks, per_node), "whole nodes");
  }
  set_machine(one, ranks, ranks / per_node, place);
  one.size = Bytes(count("size", kMostBytes));
  one.seconds = number("time") * kMicro;
  result.are_of_mscclpp = true;
  add_case(result, std::move(one));
}

/// The table of nccl-tests: size count type redop root, then time (µs), algbw, busbw, #wrong twice.
class LogReader {
 public:
  void read(const std::string& line, const Place& place, Measurements& result) {
    std::istringstream words(line);
    std::vector<std::string> cells;
    for (std::string word; words >> word;) {
      cells.push_back(word);
    }
    if (cells.size() > 2 && cells[0] == "#" && cells[1] == "Rank") {
      ++ranks_;
      const auto on = std::find(cells.begin(), cells.end(), "on");
      if (on != cells.end() && on + 1 != cells.end()) {
        hosts_.insert(*(on + 1));
      }
      return;
    }
    constexpr std::size_t kTimeCell = 5;
    if (cells.empty() || cells[0].front() == '#' || cells.size() <= kTimeCell + 2 ||
        std::isdigit(static_cast<unsigned char>(cells[0].front())) == 0) {
      return;
    }
    if (ranks_ == 0) {
      place.fail("a row before any '# Rank' line", "the whole log");
    }
    const std::int64_t size = cells[0] == "0" ? 0 : whole(cells[0], kMostBytes, place);
    if (size == 0) {
      return;
    }
    Measured one;
    one.size = Bytes(size);
    one.seconds = positive(cells[kTimeCell], place) * kMicro;
    set_machine(one, ranks_, std::max<std::int64_t>(1, static_cast<std::int64_t>(hosts_.size())),
                place);
    add_case(result, std::move(one));
  }

 private:
  std::int64_t ranks_ = 0;
  std::set<std::string> hosts_;
};

}  // namespace

sim::nccl::Choice parse_choice(const std::string& algorithm, const std::string& protocol) {
  sim::nccl::Choice choice;
  const std::string wanted = plain(algorithm);
  for (const Algorithm one :
       {Algorithm::kRing, Algorithm::kTree, Algorithm::kNvls, Algorithm::kNvlsTree}) {
    if (wanted == plain(sim::nccl::to_string(one))) {
      choice.algorithm = one;
    }
  }
  const bool is_free = wanted.empty() || wanted == "auto" || wanted.starts_with("default");
  if (!choice.algorithm && !is_free) {
    throw ConfigError(ErrorContext{"", "algorithm", "'" + algorithm + "'",
                                   "ring, tree, nvls, nvls-tree or default"});
  }
  const std::string carrier = plain(protocol);
  for (const Protocol one : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
    if (carrier == plain(sim::nccl::to_string(one))) {
      choice.protocol = one;
    }
  }
  if (!choice.protocol && !carrier.empty() && carrier != "auto" && carrier != "default") {
    throw ConfigError(
        ErrorContext{"", "protocol", "'" + protocol + "'", "ll, ll128, simple or default"});
  }
  return choice;
}

bool has_measurement_header(const std::filesystem::path& path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) {
    return false;
  }
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const std::string text(trimmed(line));
    if (text.empty() || text.front() == '#') {
      continue;
    }
    std::set<std::string> names;
    for (const std::string& cell : csv_cells(text)) {
      names.insert(plain(cell));
    }
    const auto is_column = [&](const char* name) { return names.contains(name); };
    return std::any_of(kSizeColumns.begin(), kSizeColumns.end(), is_column) &&
           std::any_of(std::begin(kTimeColumns), std::end(kTimeColumns),
                       [&](const auto& column) { return is_column(column.first); });
  }
  return false;
}

Measurements read_measurements(const std::filesystem::path& path) {
  const std::string content = read_file(path);
  // nccl-tests 2 writes "#  Rank  0 …", later ones pad the number only.
  const bool is_log =
      content.find("# Rank") != std::string::npos || content.find("#  Rank") != std::string::npos;
  Measurements result;
  LogReader log;
  std::optional<CsvReader> csv;
  std::istringstream lines(content);
  Place place{path.string(), 0};
  for (std::string line; std::getline(lines, line);) {
    ++place.line;
    const std::string text(trimmed(line));
    if (is_log) {
      log.read(text, place, result);
    } else if (text.empty() || text.front() == '#') {
      continue;
    } else if (text.front() == '{') {
      read_json_line(text, place, result);
    } else if (!csv) {
      csv.emplace(path, csv_cells(text), place);
    } else {
      csv->read(csv_cells(text), place, result);
    }
  }
  if (result.cases.empty()) {
    throw ConfigError(ErrorContext{path.string(), "", "no measured all-reduce",
                                   "CSV, JSON lines or a log of nccl-tests with all-reduces"});
  }
  return result;
}

}  // namespace rackrail::cli
