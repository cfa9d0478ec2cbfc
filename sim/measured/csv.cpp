// CSV with a header: a size (`size_bytes`, `size(B)`), a time (`time_us`, `time(ns)`: the first
// such column, which nccl-tests has out of place), and where they are there `gpus` (in all),
// `nodes`, `op`, `algo`, `proto`, `placement` (numbers of the cluster's hosts, "0;4"). Without a
// column the number of GPUs is that in the file's name ("…-4gpu.csv"). "default" in `algo` leaves
// the choice to NCCL's formula; what follows it in brackets is ignored.
#include "base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sim/measured/formats.hpp"

namespace rackrail::sim::measured {

namespace {

constexpr std::initializer_list<const char*> kSizeColumns = {"sizebytes", "sizeb", "bytes", "size"};
constexpr std::pair<const char*, double> kTimeColumns[] = {
    {"timeus", kMicro}, {"timens", kNano}, {"times", 1.0}, {"timems", kMilli}};

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

/// "0 4" or "0;4": as many different numbers as nodes; none for an empty cell.
std::vector<std::size_t> host_numbers(std::string text, std::size_t nodes, const Place& place) {
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

class CsvReader {
 public:
  CsvReader(const std::filesystem::path& path, const std::vector<std::string>& header,
            const Place& place)
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
    operation_ = first_of({"op", "collective"});
    algorithm_ = first_of({"algo", "algorithm"});
    protocol_ = first_of({"proto", "protocol"});
    placement_ = first_of({"placement"});
    if (!gpus_ && !gpus_in_name_) {
      place.fail("no column 'gpus'", "one, or a file name that ends in the number: -4gpu.csv");
    }
  }

  void read(const std::vector<std::string>& cells, const Place& place, Measurements& result) const {
    Row row{place.line, Operation::kAllReduce, false, {}};
    if (operation_) {
      row.operation = parse_operation(cell(cells, operation_, place));
    }
    try {
      read_cells(row.measurement, cells, place);
      add_row(result, std::move(row));
    } catch (const ConfigError&) {
      if (row.operation == Operation::kAllReduce) {
        throw;
      }
      ++result.unread_others;
    }
  }

 private:
  static std::string cell(const std::vector<std::string>& cells, std::optional<std::size_t> column,
                          const Place& place) {
    if (column && *column >= cells.size()) {
      place.fail(counted(std::ssize(cells), "cell"), "as many as the header has");
    }
    return column ? cells[*column] : std::string();
  }

  void read_cells(nccl::Measured& one, const std::vector<std::string>& cells,
                  const Place& place) const {
    one.size = Bytes(whole(cell(cells, size_, place), kMostBytes, place));
    one.seconds = positive(cell(cells, time_, place), place) * unit_;
    try {
      one.choice = parse_choice(cell(cells, algorithm_, place), cell(cells, protocol_, place));
    } catch (const ConfigError& error) {
      place.fail(error.context().found, error.context().expected);
    }
    set_machine(one, gpus_ ? whole(cell(cells, gpus_, place), kMostRanks, place) : *gpus_in_name_,
                nodes_ ? whole(cell(cells, nodes_, place), kMostRanks, place) : 1, place);
    one.hosts = host_numbers(cell(cells, placement_, place), one.nodes, place);
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
  std::optional<std::size_t> size_, time_, gpus_, nodes_, operation_, algorithm_, protocol_,
      placement_;
  double unit_ = kMicro;
};

}  // namespace

bool is_csv(std::string_view content) {
  std::istringstream lines{std::string(content)};
  for (std::string line; std::getline(lines, line);) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') {
      continue;
    }
    std::set<std::string> names;
    for (const std::string& name : csv_cells(text)) {
      names.insert(plain(name));
    }
    const auto is_column = [&](const char* name) { return names.contains(name); };
    return std::any_of(kSizeColumns.begin(), kSizeColumns.end(), is_column) &&
           std::any_of(std::begin(kTimeColumns), std::end(kTimeColumns),
                       [&](const auto& column) { return is_column(column.first); });
  }
  return false;
}

Measurements read_csv(const std::filesystem::path& path, const std::string& content) {
  Measurements result;
  std::optional<CsvReader> reader;
  for (const CsvLine& line : csv_lines(content)) {
    const Place place{path.string(), line.number};
    if (!reader) {
      reader.emplace(path, line.cells, place);
    } else {
      reader->read(line.cells, place, result);
    }
  }
  return result;
}

}  // namespace rackrail::sim::measured
