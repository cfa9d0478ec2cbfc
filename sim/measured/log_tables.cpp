#include "sim/measured/log_tables.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace rackrail::sim::measured {

namespace {

/// Names of tests in a line, as in a command: ".../build/all_reduce_perf -b 8".
std::set<Operation> programs_in(std::string_view line) {
  std::set<Operation> found;
  for (std::string_view word : words_of(line)) {
    const std::size_t end = word.find("_perf");
    if (end == std::string_view::npos) {
      continue;
    }
    word = word.substr(0, end);
    const std::size_t begin = word.find_last_of("/'\"=[(:");
    const Operation operation =
        parse_operation(begin == std::string_view::npos ? word : word.substr(begin + 1));
    if (operation != Operation::kUnknown) {
      found.insert(operation);
    }
  }
  return found;
}

/// "# Avg bus bandwidth    : 2.50532".
std::optional<double> average_in(std::string_view line) {
  if (line.find("Avg bus bandwidth") == std::string_view::npos) {
    return std::nullopt;
  }
  for (const std::string_view word : words_of(line.substr(line.find("Avg bus bandwidth") + 17))) {
    if (is_number(word)) {
      return real_number(word);
    }
  }
  return std::nullopt;
}

/// The tables of a log, and what stands between them.
class TableReader {
 public:
  void read(const ProgramLine& line) {
    if (std::optional<ListedRank> rank = parse_rank(line.text)) {
      if (has_table_since_ranks_) {
        restart();
      }
      ranks_.push_back(std::move(*rank));
    } else if (line.text.find("nThread") != std::string::npos) {
      restart();
    } else if (std::optional<TableHeader> header = TableHeader::parse(line.text)) {
      open(std::move(*header), line.number);
    } else if (tables_.empty() || !read_in_table(line)) {
      read_around(line.text);
    }
  }

  LogTables finish() {
    std::erase_if(tables_, [](const Table& table) { return table.rows.empty(); });
    return {std::move(tables_), not_understood_, std::move(first_)};
  }

 private:
  void restart() {
    ranks_.clear();
    is_in_place_only_ = false;
    has_table_since_ranks_ = false;
    is_open_ = false;
  }

  void open(TableHeader header, std::size_t number) {
    header.is_in_place_only = is_in_place_only_;
    Table table{.header = std::move(header), .line = number};
    table.ranks = ranks_;
    table.started = std::exchange(started_, std::nullopt);
    table.programs = std::exchange(programs_, {});
    if (!tables_.empty() && tables_.back().rows.empty()) {
      // Several processes print headers at once; the names belong to all.
      table.started = table.started ? table.started : tables_.back().started;
      table.programs.merge(tables_.back().programs);
      tables_.pop_back();
    }
    tables_.push_back(std::move(table));
    has_table_since_ranks_ = true;
    is_open_ = true;
  }

  bool read_in_table(const ProgramLine& line) {
    Table& table = tables_.back();
    if (std::optional<TableRow> row = table.header.row(line.text, line.number)) {
      table.last_line = line.number;
      table.rows.push_back(std::move(*row));
      return true;
    }
    if (table.rows.empty() && !table.unit) {
      table.unit = unit_of_time(line.text);
      if (table.unit) {
        return true;
      }
    }
    if (const std::optional<double> average = average_in(line.text)) {
      table.average_busbw = average;
      is_open_ = false;
      return true;
    }
    is_open_ = is_open_ && line.text.find("Out of bounds") == std::string::npos &&
               !line.text.starts_with("```");
    if (is_open_ && line.text.front() != '#') {
      first_ = not_understood_ == 0 ? line : first_;
      ++not_understood_;
    }
    return false;
  }

  void read_around(std::string_view text) {
    if (text.find("in-place") != std::string_view::npos ||
        text.find("out-of-place") != std::string_view::npos) {
      is_in_place_only_ = text.find("out-of-place") == std::string_view::npos;
    }
    const std::set<Operation> programs = programs_in(text);
    if (text.find("Collective test starting") != std::string_view::npos && programs.size() == 1) {
      started_ = *programs.begin();
    }
    if (text.find("Collective test concluded") == std::string_view::npos) {
      programs_.insert(programs.begin(), programs.end());
    }
  }

  std::vector<Table> tables_;
  std::vector<ListedRank> ranks_;
  std::optional<Operation> started_;
  std::set<Operation> programs_;
  bool is_in_place_only_ = false;
  bool has_table_since_ranks_ = false;
  bool is_open_ = false;  ///< between the header and "# Out of bounds values"
  std::size_t not_understood_ = 0;
  ProgramLine first_;
};

}  // namespace

LogTables read_tables(const std::vector<ProgramLine>& lines) {
  TableReader reader;
  for (const ProgramLine& line : lines) {
    reader.read(line);
  }
  return reader.finish();
}

}  // namespace rackrail::sim::measured
