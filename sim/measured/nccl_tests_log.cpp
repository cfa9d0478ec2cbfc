// Logs of nccl-tests and rccl-tests as people post them: one table or many, each with its list of
// ranks, between lines of NCCL, launchers and scripts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sim/measured/debug_log.hpp"
#include "sim/measured/formats.hpp"
#include "sim/measured/inference.hpp"
#include "sim/measured/log_tables.hpp"

namespace rackrail::sim::measured {

namespace {

double gigabytes_per_second(double size, double seconds) { return size / seconds * 1e-9; }

/// Of a header without units: that in which most times agree with algbw; else the version's.
double unit_by_algbw(const Table& table) {
  constexpr double kLeastExact = 0.1;  // two decimals
  std::map<double, std::size_t> votes;
  for (const TableRow& row : table.rows) {
    for (const TableTime& one : row.times) {
      for (const double unit : {kMicro, kMilli, kNano, 1.0}) {
        if (one.algbw && *one.algbw >= kLeastExact &&
            std::abs(gigabytes_per_second(row.size, one.time * unit) / *one.algbw - 1) < 0.1) {
          ++votes[unit];
        }
      }
    }
  }
  const auto most = std::ranges::max_element(
      votes, [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != votes.end() ? most->first : table.header.is_of_version_1() ? kMilli : kMicro;
}

/// busbw / algbw: of the largest busbw printed, or of the average, which has more digits.
std::optional<double> factor_of(const Table& table, double unit) {
  constexpr double kLeastExact = 0.3;
  const TableTime* best = nullptr;
  double sum = 0;
  std::size_t count = 0;
  for (const TableRow& row : table.rows) {
    for (const TableTime& one : row.times) {
      sum += gigabytes_per_second(row.size, one.time * unit);
      ++count;
      if (one.algbw && one.busbw && *one.algbw > 0 && *one.busbw >= kLeastExact &&
          (best == nullptr || *one.busbw > *best->busbw)) {
        best = &one;
      }
    }
  }
  if (best != nullptr) {
    return *best->busbw / *best->algbw;
  }
  if (table.average_busbw && *table.average_busbw > 0 && sum > 0) {
    return *table.average_busbw * static_cast<double>(count) / sum;
  }
  return std::nullopt;
}

Evidence evidence_of(const Table& table, std::size_t ranks, double unit) {
  Evidence evidence{.ranks = ranks, .factor = factor_of(table, unit)};
  bool has_checked = false;
  for (const TableRow& row : table.rows) {
    evidence.has_reduction = evidence.has_reduction || row.has_reduction;
    evidence.has_root = evidence.has_root || row.has_root;
    evidence.has_blank_reduction = evidence.has_blank_reduction || row.has_blank_reduction;
    for (const TableTime& one : row.times) {
      has_checked = has_checked || (!one.is_in_place && !one.is_unchecked);
      evidence.has_unchecked_results =
          evidence.has_unchecked_results || (one.is_in_place && one.is_unchecked);
    }
  }
  evidence.has_unchecked_results = evidence.has_unchecked_results && has_checked;
  return evidence;
}

class LogReader {
 public:
  explicit LogReader(const std::filesystem::path& path) : path_(path) {}

  Measurements read(const std::string& content) {
    const SeparatedLog log = separate(content);
    if (!log.nccl.empty()) {
      const DebugLog said = read_debug_log(content);
      said_ranks_ = said.ranks;
      said_nodes_ = said.nodes;
    }
    LogTables read = read_tables(log.program);
    name_operations(read.tables);
    std::size_t before = 0;
    for (const Table& table : read.tables) {
      collect_choices(log.nccl, before, table);
      add(table);
      before = table.last_line;
    }
    if (read.not_understood > 0) {
      const ProgramLine& first = read.first_not_understood;
      note(fmt::format("{} in tables not understood, the first is line {}: '{}'",
                       counted(static_cast<std::int64_t>(read.not_understood), "line"),
                       first.number, first.text.substr(0, 60)));
    }
    say_counts();
    return std::move(result_);
  }

 private:
  void note(std::string text) {
    if (std::ranges::find(result_.notes, text) == result_.notes.end()) {
      result_.notes.push_back(std::move(text));
    }
  }

  static double unit_of(const Table& table) {
    return table.unit ? *table.unit : unit_by_algbw(table);
  }

  /// By its list of ranks; where that is not there or cut, by what NCCL says of itself.
  ListedMachine machine_of_table(const Table& table) const {
    ListedMachine machine = machine_of(table.ranks);
    if (machine.ranks == 0 && said_ranks_ > 1 && said_nodes_ > 0 &&
        said_ranks_ % said_nodes_ == 0) {
      machine = {said_ranks_, said_nodes_, {}, {}};
      machine.notes.push_back(
          fmt::format("no whole list of ranks: {} ranks on {} hosts, as NCCL's own lines say",
                      said_ranks_, said_nodes_));
    }
    return machine;
  }

  /// The log's word, else what the figures say, else the command in the log, else what the other
  /// tables of the file are, else the file's name.
  void name_operations(std::vector<Table>& tables) {
    std::set<Operation> known;
    for (Table& table : tables) {
      table.operation = named_operation(table);
      if (table.operation != Operation::kUnknown) {
        known.insert(table.operation);
      }
    }
    const Operation by_file = parse_operation_in_name();
    for (Table& table : tables) {
      if (table.operation != Operation::kUnknown) {
        continue;
      }
      if (known.size() == 1) {
        table.operation = *known.begin();
        ++inferred_[{table.operation, "the other tables are"}];
      } else if (by_file != Operation::kUnknown) {
        table.operation = by_file;
        ++inferred_[{table.operation, "the file's name says so"}];
      }
    }
  }

  Operation named_operation(const Table& table) {
    if (table.started) {
      return *table.started;
    }
    const std::size_t ranks = machine_of_table(table).ranks;
    const Evidence evidence = evidence_of(table, ranks, unit_of(table));
    if (table.programs.size() == 1 && fits(*table.programs.begin(), evidence)) {
      return *table.programs.begin();
    }
    const Inferred inferred = infer(evidence);
    if (inferred.operation != Operation::kUnknown) {
      ++inferred_[{inferred.operation, std::string(inferred.reason)}];
    }
    return inferred.operation;
  }

  /// Whether the figures do not speak against it.
  static bool fits(Operation operation, const Evidence& evidence) {
    const bool reduces = operation == Operation::kAllReduce || operation == Operation::kReduce ||
                         operation == Operation::kReduceScatter;
    if (evidence.has_reduction && !reduces) {
      return false;
    }
    return !evidence.factor || evidence.ranks < 2 ||
           std::abs(*evidence.factor / *bus_factor(operation, evidence.ranks) - 1) < 0.2;
  }

  Operation parse_operation_in_name() const {
    const std::string name = plain(path_.filename().string());
    for (const auto& [word, operation] : {std::pair("allreduce", Operation::kAllReduce),
                                          {"allgather", Operation::kAllGather},
                                          {"reducescatter", Operation::kReduceScatter},
                                          {"alltoall", Operation::kAllToAll},
                                          {"broadcast", Operation::kBroadcast},
                                          {"sendrecv", Operation::kSendReceive}}) {
      if (name.find(word) != std::string::npos) {
        return operation;
      }
    }
    return Operation::kUnknown;
  }

  /// What NCCL said that it would run, of the sizes of this table.
  void collect_choices(const std::vector<NcclLine>& lines, std::size_t before, const Table& table) {
    choices_.clear();
    for (const NcclLine& line : lines) {
      if (line.number <= before || line.number > table.last_line) {
        continue;
      }
      const std::optional<Chosen> chosen = parse_chosen(line.text);
      if (chosen &&
          (chosen->operation == Operation::kUnknown || chosen->operation == table.operation)) {
        choices_[chosen->bytes].insert({chosen->algorithm, chosen->protocol});
      }
    }
  }

  /// Free where the log says nothing, several things, or what the model does not know.
  nccl::Choice choice_of(double size) {
    const auto found = choices_.find(static_cast<std::int64_t>(size));
    if (found == choices_.end() || found->second.size() != 1) {
      return {};
    }
    try {
      const auto& [algorithm, protocol] = *found->second.begin();
      const nccl::Choice choice = parse_choice(algorithm, protocol);
      result_.has_logged_choice = true;
      return choice;
    } catch (const ConfigError&) {
      ++left_out_
          ["by an algorithm that the model does not know, predicted by NCCL's "
           "own choice"];
      return {};
    }
  }

  void add(const Table& table) {
    const ListedMachine machine = machine_of_table(table);
    const double unit = unit_of(table);
    for (const std::string& text : machine.notes) {
      note(text);
    }
    if (table.header.is_cpu_time()) {
      note("times are those of the CPU's call");
    }
    if (!machine.problem.empty()) {
      left_out_["left out: " + machine.problem] += table.rows.size();
      return;
    }
    if (table.operation == Operation::kUnknown) {
      left_out_["of an operation that the log does not tell"] += table.rows.size();
    }
    for (const TableRow& row : table.rows) {
      if (row.size == 0) {
        continue;
      }
      add(row, table.operation, machine, unit);
    }
  }

  void add(const TableRow& row, Operation operation, const ListedMachine& machine, double unit) {
    for (const TableTime& one : row.times) {
      const double seconds = one.time * unit;
      const double algbw = gigabytes_per_second(row.size, seconds);
      if (operation == Operation::kAllReduce && one.algbw && *one.algbw >= 0.5 &&
          std::abs(algbw / *one.algbw - 1) > 0.1) {
        ++left_out_["left out: time and algbw do not belong to the size"];
        continue;
      }
      left_out_["with wrong results"] += one.is_wrong ? 1 : 0;
      Row kept{row.line, operation, one.is_in_place, {}};
      kept.measurement.nodes = machine.nodes;
      kept.measurement.gpus_per_node = machine.ranks / machine.nodes;
      kept.measurement.size = Bytes(static_cast<std::int64_t>(row.size));
      kept.measurement.seconds = seconds;
      kept.measurement.choice = choice_of(row.size);
      add_row(result_, std::move(kept));
    }
  }

  void say_counts() {
    for (const auto& [what, count] : inferred_) {
      note(fmt::format("{} without a name taken for {}: {}",
                       counted(static_cast<std::int64_t>(count), "table"), to_string(what.first),
                       what.second));
    }
    for (const auto& [what, count] : left_out_) {
      if (count > 0) {
        note(fmt::format("{} {}", counted(static_cast<std::int64_t>(count), "row"), what));
      }
    }
  }

  std::filesystem::path path_;
  Measurements result_;
  std::size_t said_ranks_ = 0;  ///< by NCCL, of its largest communicator
  std::size_t said_nodes_ = 0;
  std::map<std::pair<Operation, std::string>, std::size_t> inferred_;
  std::map<std::string, std::size_t> left_out_;
  std::map<std::int64_t, std::set<std::pair<std::string, std::string>>> choices_;
};

}  // namespace

bool is_nccl_tests_log(std::string_view content) {
  while (!content.empty()) {
    const std::size_t end = content.find('\n');
    const std::string_view line = content.substr(0, end);
    if ((line.find("algbw") != std::string_view::npos && TableHeader::parse(line)) ||
        (line.find("Rank") != std::string_view::npos && parse_rank(line))) {
      return true;
    }
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
  return false;
}

Measurements read_nccl_tests_log(const std::filesystem::path& path, const std::string& content) {
  return LogReader(path).read(content);
}

}  // namespace rackrail::sim::measured
