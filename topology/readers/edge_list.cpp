// The plain edge list: CSV with a header.
//
//   source,target,bandwidth,latency,kind
//   gpu0,leaf0,25 GB/s,1 us,host-link
//
// `kind`, `tier`, `overhead`, `receive_overhead`, `flow_bandwidth`, `burst`, `cpu_share` and
// `adapter` may be left out. Each line is both directions unless a line before the header says `#
// directed`, or the line itself has `true` in a column `directed`. Cells may be in double quotes.
// Vertices whose names start with "gpu" or "host" are ranks, in order of appearance. A second
// table, with a header of its own, may say otherwise:
//
//   vertex,role,kind,host,rack,device_class,memory
//   gpu0,rank,gpu,node0,,A100,40 GB
//
// which may have columns `host_staging`, `multicasts` and `reduces` (true or false), too.
//
// Once it is there, the ranks are the vertices with the role `rank`, in its order. Columns after
// `role` may be left out, and so may vertices that are plain switches. A rank of it that no line
// links is an error, unless it is alone; of a switch a note says so. Where no vertex has a rack,
// they are told by what hangs on which switches, whatever their names (racks.hpp); without a column
// `host`, hosts by NVSwitches and NVLinks (hosts.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/hosts.hpp"
#include "topology/racks.hpp"
#include "topology/readers/edge_list_names.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kMostColumns = 16;
constexpr std::string_view kRankTable = "vertex,role";

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_header(const std::vector<std::string>& cells, std::string_view first,
               std::string_view second) {
  return cells.size() > 1 && cells[0] == first && cells[1] == second;
}

/// "directed", "directed: true" or "directed=true", in a comment or on a line of its own.
bool says_directed(std::string_view line) {
  if (line.starts_with('#')) line = trimmed(line.substr(1));
  if (!line.starts_with("directed")) return false;
  line = trimmed(line.substr(std::string_view("directed").size()));
  if (line.starts_with(':') || line.starts_with('=')) line = trimmed(line.substr(1));
  return line.empty() || line == "true" || line == "yes";
}

/// One line of a table; complains with file, line and column.
class Row {
 public:
  Row(const std::string& file, std::size_t line, const std::vector<std::string>& columns,
      const std::vector<std::string>& cells)
      : file_(file), line_(line), columns_(columns), cells_(cells) {
    if (cells.size() != columns.size()) {
      throw ConfigError(
          ErrorContext{file_, fmt::format("line {}", line_), counted(std::ssize(cells), "cell"),
                       fmt::format("{}: {}", columns.size(), fmt::join(columns, ","))});
    }
  }

  [[noreturn]] void fail(std::string_view column, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(
        ErrorContext{file_, fmt::format("line {}, column {}", line_, column), found, expected});
  }

  /// The cell, or an empty text where the table has no such column.
  std::string cell(std::string_view column) const {
    const auto found = std::find(columns_.begin(), columns_.end(), column);
    return found == columns_.end() ? std::string()
                                   : cells_[static_cast<std::size_t>(found - columns_.begin())];
  }

  std::size_t line() const { return line_; }

  std::string name(std::string_view column) const {
    std::string text = cell(column);
    if (text.empty()) fail(column, "nothing", "a name");
    return text;
  }

  template <typename Parse>
  auto quantity(std::string_view column, Parse parse) const {
    try {
      return parse(cell(column));
    } catch (const ConfigError& e) {
      fail(column, e.context().found, e.context().expected);
    }
  }

 private:
  const std::string& file_;
  std::size_t line_;
  const std::vector<std::string>& columns_;
  const std::vector<std::string>& cells_;
};

class EdgeListParser {
 public:
  EdgeListParser(std::string file, std::string name)
      : file_(std::move(file)), topology_(std::move(name)) {}

  Topology parse(std::string_view content) {
    for (std::size_t line = 1; !content.empty(); ++line) {
      const std::size_t end = content.find('\n');
      read_line(line, trimmed(content.substr(0, end)));
      content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    }
    if (columns_.empty()) {
      throw ConfigError(
          ErrorContext{file_, "", "no header", "a line 'source,target,bandwidth,latency'"});
    }
    if (!has_vertex_table_) {
      add_ranks_by_name();
    }
    if (!has_vertex_table_ || std::ranges::find(columns_, "host") == columns_.end()) {
      hosts_by_structure_ = name_hosts(topology_);
    }
    refuse_ranks_without_link();
    name_racks(topology_);
    return std::move(topology_);
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (rows_both_ways_ > 0) {
      notes.push_back(fmt::format(
          "{} {} there in the other direction already (the first is line {}): a line is both "
          "directions, so these are second cables; where each line is one direction, put "
          "'# directed' before the header",
          rows_both_ways_, rows_both_ways_ == 1 ? "link is" : "links are", first_row_both_ways_));
    }
    if (!ends_without_rank_.empty()) {
      notes.push_back(fmt::format(
          "'{}'{} on one other vertex and no rank: ranks are the vertices named gpu… or host…, or "
          "those of a table '{}'",
          ends_without_rank_.front(),
          ends_without_rank_.size() == 1
              ? " is"
              : fmt::format(" and {} more are each", ends_without_rank_.size() - 1),
          kRankTable));
    }
    if (hosts_by_structure_ > 0) {
      notes.push_back(
          fmt::format("{} of several GPUs: what NVSwitches and NVLinks join; a table '{},host' "
                      "would name the hosts",
                      counted(static_cast<std::int64_t>(hosts_by_structure_), "host"), kRankTable));
    }
    if (!unlinked_switches_.empty()) {
      const UnlinkedVertex& first = unlinked_switches_.front();
      notes.push_back(fmt::format(
          "line {}: no link names '{}' of the table of vertices{}: a misspelt name?", first.line,
          first.name,
          unlinked_switches_.size() == 1
              ? std::string()
              : fmt::format(", nor {} more of its switches", unlinked_switches_.size() - 1)));
    }
    return notes;
  }

 private:
  void refuse_ranks_without_link() const {
    if (topology_.rank_count() > 1 && !unlinked_ranks_.empty()) {
      const UnlinkedVertex& first = unlinked_ranks_.front();
      throw ConfigError(ErrorContext{file_, fmt::format("line {}, column vertex", first.line),
                                     fmt::format("'{}', which no link names", first.name),
                                     "a rank that the table of links names"});
    }
  }

  void add_ranks_by_name() {
    for (std::size_t v = 0; v < topology_.node_count(); ++v) {
      const Node& node = topology_.node(NodeId(v));
      if (is_rank_by_name(node.name)) {
        topology_.add_rank(NodeId(v));
      } else if (node.kind == NodeKind::kSwitch && has_one_neighbour(NodeId(v))) {
        ends_without_rank_.push_back(node.name);
      }
    }
    if (topology_.rank_count() == 0) {
      throw ConfigError(ErrorContext{
          file_, "", "no rank",
          fmt::format("vertices named gpu… or host…, or a table '{}' that says which are ranks",
                      kRankTable)});
    }
  }

  bool has_one_neighbour(NodeId node) const {
    std::set<NodeId> neighbours;
    for (const LinkId link : topology_.links_out_of(node)) {
      neighbours.insert(topology_.link(link).to);
    }
    for (const LinkId link : topology_.links_into(node)) {
      neighbours.insert(topology_.link(link).from);
    }
    return neighbours.size() == 1;
  }

  void read_line(std::size_t line, std::string_view text) {
    if (text.empty()) return;
    if (columns_.empty() && says_directed(text)) {
      is_directed_ = true;
      return;
    }
    if (text.front() == '#') return;
    const std::vector<std::string> cells = csv_cells(text);
    const std::string where = fmt::format("line {}", line);
    if (is_header(cells, "source", "target")) {
      if (!columns_.empty()) fail_order(where, cells);
      set_columns(where, cells, {"source", "target", "bandwidth", "latency"},
                  {"kind", "tier", "overhead", "receive_overhead", "flow_bandwidth", "burst",
                   "cpu_share", "adapter", "directed"});
    } else if (is_header(cells, "vertex", "role")) {
      if (columns_.empty() || has_vertex_table_) fail_order(where, cells);
      set_columns(where, cells, {"vertex", "role"},
                  {"kind", "host", "rack", "device_class", "memory", "host_staging", "multicasts",
                   "reduces"});
      has_vertex_table_ = true;
    } else if (columns_.empty()) {
      throw ConfigError(ErrorContext{file_, where, fmt::format("'{:.60}'", text),
                                     "a header 'source,target,bandwidth,latency[,kind]'"});
    } else if (has_vertex_table_) {
      read_vertex(Row(file_, line, columns_, cells));
    } else {
      read_edge(Row(file_, line, columns_, cells));
    }
  }

  [[noreturn]] void fail_order(const std::string& where,
                               const std::vector<std::string>& cells) const {
    throw ConfigError(ErrorContext{file_, where, fmt::format("a table '{},{}'", cells[0], cells[1]),
                                   "one table of edges, then at most one of vertices"});
  }

  void set_columns(const std::string& where, const std::vector<std::string>& cells,
                   const std::vector<std::string>& required,
                   const std::vector<std::string>& optional) {
    if (cells.size() > kMostColumns || cells.size() < required.size() ||
        !std::equal(required.begin(), required.end(), cells.begin())) {
      throw ConfigError(ErrorContext{
          file_, where, fmt::format("header '{}'", fmt::join(cells, ",")),
          fmt::format("'{}[,{}]'", fmt::join(required, ","), fmt::join(optional, ","))});
    }
    columns_.assign(cells.begin(), cells.end());
    for (std::size_t i = required.size(); i < columns_.size(); ++i) {
      const bool is_known =
          std::find(optional.begin(), optional.end(), columns_[i]) != optional.end();
      const bool is_second = std::find(columns_.begin(), columns_.begin() + static_cast<long>(i),
                                       columns_[i]) != columns_.begin() + static_cast<long>(i);
      if (!is_known || is_second) {
        throw ConfigError(
            ErrorContext{file_, where, fmt::format("column '{}'", columns_[i]),
                         fmt::format("{}, each at most once", fmt::join(optional, ", "))});
      }
    }
  }

  NodeId vertex(const std::string& name) {
    if (const std::optional<NodeId> known = topology_.find_node(name)) return *known;
    Node node;
    node.name = name;
    node.kind = kind_by_name(name);
    return topology_.add_node(std::move(node));
  }

  void read_edge(const Row& row) {
    Link link;
    link.from = vertex(row.name("source"));
    link.to = vertex(row.name("target"));
    if (link.from == link.to) row.fail("target", row.cell("target"), "another vertex than source");
    link.bandwidth = row.quantity("bandwidth", [](const auto& t) { return parse_bandwidth(t); });
    if (link.bandwidth <= Bandwidth(0)) row.fail("bandwidth", "0", "a rate above 0");
    link.latency = row.quantity("latency", [](const auto& t) { return parse_duration(t); });
    if (const std::string kind = row.cell("kind"); !kind.empty()) {
      const std::optional<LinkKind> known = parse_link_kind(kind);
      if (!known) {
        row.fail("kind", fmt::format("'{}'", kind),
                 "nvlink, pcie, socket, host-link, uplink, shared or other");
      }
      link.kind = *known;
    }
    link.tier = row.cell("tier");
    for (const auto& [column, overhead] : {std::pair("overhead", &link.overhead),
                                           std::pair("receive_overhead", &link.receive_overhead)}) {
      if (!row.cell(column).empty()) {
        *overhead = row.quantity(column, [](const auto& t) { return parse_duration(t); });
      }
    }
    link.adapter = row.cell("adapter");
    if (!row.cell("burst").empty()) {
      link.burst = row.quantity("burst", [](const auto& t) { return parse_bytes(t); });
    }
    if (!row.cell("flow_bandwidth").empty()) {
      link.flow_bandwidth =
          row.quantity("flow_bandwidth", [](const auto& t) { return parse_bandwidth(t); });
    }
    if (const std::string share = row.cell("cpu_share"); !share.empty()) {
      link.cpu_share = share_of(row, share);
    }
    if (flag_of(row, "directed") || is_directed_) {
      topology_.add_link(std::move(link));
    } else {
      if (duplex_rows_.contains({link.to, link.from})) {
        first_row_both_ways_ = rows_both_ways_++ == 0 ? row.line() : first_row_both_ways_;
      }
      duplex_rows_.insert({link.from, link.to});
      topology_.add_duplex_link(std::move(link));
    }
  }

  static bool flag_of(const Row& row, const char* column) {
    const std::string text = row.cell(column);
    if (text != "true" && text != "false" && !text.empty()) {
      row.fail(column, fmt::format("'{}'", text), "true or false");
    }
    return text == "true";
  }

  static double share_of(const Row& row, const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() + text.size() || !(value >= 0 && value <= 1)) {
      row.fail("cpu_share", fmt::format("'{}'", text), "a share from 0 to 1");
    }
    return std::abs(value);  // of "-0"
  }

  void read_vertex(const Row& row) {
    const std::string name = row.name("vertex");
    const bool is_linked = topology_.find_node(name).has_value();
    const NodeId id = vertex(name);
    Node node = topology_.node(id);
    const std::string role = row.cell("role");
    if (role != "rank" && role != "switch") {
      row.fail("role", fmt::format("'{}'", role), "rank or switch");
    }
    if (const std::string kind = row.cell("kind"); !kind.empty()) {
      const std::optional<NodeKind> known = parse_node_kind(kind);
      if (!known) {
        row.fail("kind", fmt::format("'{}'", kind),
                 "gpu, cpu, pcie, nic, nvswitch, host, tor, spine, core or switch");
      }
      node.kind = *known;
    }
    node.host = row.cell("host");
    node.rack = row.cell("rack");
    node.device_class = row.cell("device_class");
    if (!row.cell("memory").empty()) {
      node.memory = row.quantity("memory", [](const auto& t) { return parse_bytes(t); });
    }
    if (!row.cell("host_staging").empty()) {
      node.host_staging =
          row.quantity("host_staging", [](const auto& t) { return parse_bandwidth(t); });
    }
    node.multicasts = flag_of(row, "multicasts");
    node.reduces = flag_of(row, "reduces");
    topology_.set_node_properties(id, node);
    if (role == "rank") {
      if (topology_.rank_of(id))
        row.fail("vertex", fmt::format("'{}'", node.name), "each rank once");
      topology_.add_rank(id);
    }
    if (!is_linked) {
      (role == "rank" ? unlinked_ranks_ : unlinked_switches_).push_back({name, row.line()});
    }
  }

  /// A row of the table of vertices.
  struct UnlinkedVertex {
    std::string name;
    std::size_t line;
  };

  std::string file_;
  Topology topology_;
  std::vector<std::string> columns_;
  bool has_vertex_table_ = false;
  bool is_directed_ = false;
  std::set<std::pair<NodeId, NodeId>> duplex_rows_;
  std::size_t rows_both_ways_ = 0;
  std::size_t first_row_both_ways_ = 0;
  std::vector<std::string> ends_without_rank_;  // where names say what is a rank
  std::size_t hosts_by_structure_ = 0;
  std::vector<UnlinkedVertex> unlinked_ranks_;
  std::vector<UnlinkedVertex> unlinked_switches_;
};

class EdgeListReader : public Reader {
 public:
  std::string_view format() const override { return "edge-list"; }

  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    // Comments and blank lines may stand before the header.
    for (std::string_view rest = content; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = trimmed(rest.substr(0, end));
      if (!line.empty() && line.front() != '#') {
        return is_header(csv_cells(line), "source", "target") || path.extension() == ".csv";
      }
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    return path.extension() == ".csv";
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    refuse_overlay(path, options);
    EdgeListParser parser(path.string(), path.stem().string());
    Topology topology = parser.parse(content);
    return {std::move(topology), parser.notes(), {path}};
  }
};

}  // namespace

NodeKind kind_by_name(std::string_view name) {
  if (name.starts_with("gpu")) return NodeKind::kGpu;
  if (name.starts_with("host")) return NodeKind::kHost;
  if (name.starts_with("nvswitch")) return NodeKind::kNvSwitch;
  if (name.starts_with("nic")) return NodeKind::kNic;
  if (name.starts_with("cpu")) return NodeKind::kCpu;
  if (name.starts_with("pcie")) return NodeKind::kPciSwitch;
  if (starts_with_any(name, {"tor", "leaf"})) return NodeKind::kTor;
  if (name.starts_with("spine")) return NodeKind::kSpine;
  if (name.starts_with("core")) return NodeKind::kCore;
  return NodeKind::kSwitch;
}

bool is_rank_by_name(std::string_view name) { return starts_with_any(name, {"gpu", "host"}); }

std::unique_ptr<Reader> make_edge_list_reader() { return std::make_unique<EdgeListReader>(); }

}  // namespace rackrail::topology
