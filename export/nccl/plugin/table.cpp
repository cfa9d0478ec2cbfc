#include "export/nccl/plugin/table.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <span>

namespace rackrail::nccl_tuner {

namespace {

constexpr std::size_t kFewestColumns = 8;
constexpr std::size_t kMostColumns = 11;

constexpr std::array<std::string_view, 5> kFunctions{"broadcast", "reduce", "allgather",
                                                     "reducescatter", "allreduce"};
constexpr std::array<std::string_view, 7> kAlgorithms{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, 3> kProtocols{"ll", "ll128", "simple"};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == text.npos ? std::string_view()
                            : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    cells.push_back(trimmed(line.substr(0, comma)));
    if (comma == line.npos) {
      return cells;
    }
    line.remove_prefix(comma + 1);
  }
}

/// Reads the cells of one line; remembers the first that is wrong.
class Cells {
 public:
  explicit Cells(std::string_view line) : cells_(cells_of(line)) {}

  std::size_t size() const { return cells_.size(); }
  const std::string& problem() const { return problem_; }

  template <typename Enum>
  Enum word(std::size_t column, std::span<const std::string_view> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (cells_[column] == words[i]) {
        return static_cast<Enum>(i);
      }
    }
    fail(column);
    return {};
  }

  template <typename Number>
  Number number(std::size_t column, Number otherwise) {
    if (column >= cells_.size()) {
      return otherwise;
    }
    const std::string_view cell = cells_[column];
    Number value{};
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || end != cell.data() + cell.size()) {
      fail(column);
    }
    return value;
  }

 private:
  void fail(std::size_t column) {
    if (problem_.empty()) {
      problem_ = "'" + std::string(cells_[column]) + "' in column " + std::to_string(column + 1);
    }
  }

  std::vector<std::string_view> cells_;
  std::string problem_;
};

std::string read_line(std::string_view line, std::vector<Rule>& rules) {
  Cells cells(line);
  if (cells.size() < kFewestColumns || cells.size() > kMostColumns) {
    return std::to_string(cells.size()) + " columns where 8 to 11 are expected";
  }
  Rule rule;
  rule.function = cells.word<Function>(0, kFunctions);
  rule.least_bytes = cells.number<std::uint64_t>(1, 0);
  rule.most_bytes = cells.number<std::uint64_t>(2, 0);
  rule.algorithm = cells.word<Algorithm>(3, kAlgorithms);
  rule.protocol = cells.word<Protocol>(4, kProtocols);
  rule.channels = cells.number<long>(5, -1);
  rule.nodes = cells.number<long>(6, -1);
  rule.ranks = cells.number<long>(7, -1);
  rule.operations = cells.number<long>(8, -1);
  rule.registered = cells.number<long>(9, -1);
  rule.chunk_bytes = cells.number<long>(10, 0);
  if (cells.problem().empty()) {
    rules.push_back(rule);
  }
  return cells.problem();
}

bool fits(long wanted, std::size_t is) {
  return wanted < 0 || static_cast<std::size_t>(wanted) == is;
}

}  // namespace

Table parse_table(std::string_view text) {
  Table table;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') {
      continue;
    }
    if (const std::string problem = read_line(line, table.rules); !problem.empty()) {
      return {{}, "line " + std::to_string(number) + ": " + problem};
    }
  }
  return table;
}

bool matches(const Rule& rule, const Question& question) {
  return static_cast<int>(rule.function) == question.function &&
         question.bytes >= rule.least_bytes && question.bytes <= rule.most_bytes &&
         fits(rule.nodes, question.nodes) && fits(rule.ranks, question.ranks) &&
         (rule.operations < 0 || rule.operations == question.operations) &&
         (rule.registered < 0 || question.registered < 0 || rule.registered == question.registered);
}

std::string_view name_of(Algorithm algorithm) {
  return kAlgorithms[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(Protocol protocol) {
  return kProtocols[static_cast<std::size_t>(protocol)];
}

std::string_view name_of(Function function) {
  return kFunctions[static_cast<std::size_t>(function)];
}

}  // namespace rackrail::nccl_tuner
