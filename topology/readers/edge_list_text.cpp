// Writing the plain edge list (edge_list.cpp): no more columns, and no second table, than it takes
// for the reader to find the same cluster.
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/hosts.hpp"
#include "topology/racks.hpp"
#include "topology/readers/edge_list_names.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

/// A cell that is read back as this text.
std::string quoted_cell(const std::string& text) {
  const bool is_plain = text.find_first_of(",\"") == std::string::npos && trimmed(text) == text &&
                        !text.starts_with('#');
  if (is_plain) return text;
  std::string result = "\"";
  for (const char c : text) {
    result += c;
    if (c == '"') result += c;
  }
  return result + '"';
}

/// Hosts by vertex, as a file without them has them.
std::vector<std::string> hosts_by_names(Topology topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    Node node = topology.node(NodeId(v));
    node.host.clear();
    topology.set_node_properties(NodeId(v), node);
  }
  std::vector<std::string> hosts = hosts_by_structure(topology);
  hosts.resize(topology.node_count());
  return hosts;
}

/// Whether the rule of the names alone gives the same ranks in the same order.
bool names_say_it_all(const Topology& topology, const std::vector<NodeId>& appearance) {
  const std::vector<std::string> racks = racks_by_structure(topology);
  const std::vector<std::string> hosts = hosts_by_names(topology);
  std::uint32_t next = 0;
  for (const NodeId id : appearance) {
    const Node& node = topology.node(id);
    const std::optional<Rank> rank = topology.rank_of(id);
    if (rank.has_value() != is_rank_by_name(node.name) || (rank && rank->value() != next++) ||
        node.kind != kind_by_name(node.name) || node.host != hosts[id.index()] ||
        node.rack != (racks.empty() ? "" : racks[id.index()]) || !node.device_class.empty() ||
        node.memory || node.host_staging > Bandwidth(0) || node.multicasts || node.reduces) {
      return false;
    }
  }
  return appearance.size() == topology.node_count();
}

/// A column that is written where somebody has something in it.
template <typename Row>
struct OptionalColumn {
  const char* name;
  std::string (*cell)(const Row&);
};

std::string text_of(Bandwidth rate) { return rate > Bandwidth(0) ? to_exact_string(rate) : ""; }
std::string text_of(Bytes bytes) { return bytes > Bytes(0) ? to_exact_string(bytes) : ""; }
std::string text_of(Duration time) { return time > Duration() ? to_exact_string(time) : ""; }
std::string text_of(bool flag) { return flag ? "true" : ""; }

constexpr OptionalColumn<Link> kLinkColumns[] = {
    {"tier", [](const Link& link) { return quoted_cell(link.tier); }},
    {"overhead", [](const Link& link) { return text_of(link.overhead); }},
    {"receive_overhead", [](const Link& link) { return text_of(link.receive_overhead); }},
    {"flow_bandwidth", [](const Link& link) { return text_of(link.flow_bandwidth); }},
    {"burst", [](const Link& link) { return text_of(link.burst); }},
    {"cpu_share",
     [](const Link& link) {
       return link.cpu_share > 0 ? fmt::format("{}", link.cpu_share) : std::string();
     }},
    {"adapter", [](const Link& link) { return quoted_cell(link.adapter); }},
};
constexpr OptionalColumn<Node> kVertexColumns[] = {
    {"host_staging", [](const Node& node) { return text_of(node.host_staging); }},
    {"multicasts", [](const Node& node) { return text_of(node.multicasts); }},
    {"reduces", [](const Node& node) { return text_of(node.reduces); }},
};

/// Those in which one of `count` rows has something.
template <typename Row, std::size_t N, typename RowAt>
std::vector<OptionalColumn<Row>> used(const OptionalColumn<Row> (&columns)[N], std::size_t count,
                                      const RowAt& row_at) {
  std::vector<OptionalColumn<Row>> result;
  for (const OptionalColumn<Row>& column : columns) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!column.cell(row_at(i)).empty()) {
        result.push_back(column);
        break;
      }
    }
  }
  return result;
}

template <typename Row>
std::string names_of(const std::vector<OptionalColumn<Row>>& columns) {
  std::string text;
  for (const OptionalColumn<Row>& column : columns) text += fmt::format(",{}", column.name);
  return text + "\n";
}

template <typename Row>
std::string cells_of(const std::vector<OptionalColumn<Row>>& columns, const Row& row) {
  std::string text;
  for (const OptionalColumn<Row>& column : columns) text += "," + column.cell(row);
  return text + "\n";
}

std::string vertex_row(const Topology& topology, NodeId id) {
  const Node& node = topology.node(id);
  return fmt::format("{},{},{},{},{},{},{}", quoted_cell(node.name),
                     topology.rank_of(id) ? "rank" : "switch", to_string(node.kind),
                     quoted_cell(node.host), quoted_cell(node.rack), quoted_cell(node.device_class),
                     node.memory ? to_exact_string(*node.memory) : "");
}

}  // namespace

bool is_reverse_of(const Link& back, const Link& link) {
  return back.from == link.to && back.to == link.from && back.bandwidth == link.bandwidth &&
         back.latency == link.latency && back.kind == link.kind && back.tier == link.tier &&
         back.overhead == link.overhead && back.receive_overhead == link.receive_overhead &&
         back.flow_bandwidth == link.flow_bandwidth && back.burst == link.burst &&
         back.cpu_share == link.cpu_share && back.adapter == link.adapter;
}

std::string to_edge_list(const Topology& topology) {
  const std::size_t count = topology.link_count();
  bool is_duplex = count % 2 == 0;
  for (std::size_t l = 0; is_duplex && l < count; l += 2) {
    is_duplex = is_reverse_of(topology.link(LinkId(l + 1)), topology.link(LinkId(l)));
  }
  std::string text = is_duplex ? "" : "# directed\n";
  const auto link_columns =
      used(kLinkColumns, count, [&](std::size_t l) { return topology.link(LinkId(l)); });
  text += "source,target,bandwidth,latency,kind" + names_of(link_columns);
  std::vector<NodeId> appearance;
  std::vector<bool> seen(topology.node_count());
  for (std::size_t l = 0; l < count; l += is_duplex ? 2 : 1) {
    const Link& link = topology.link(LinkId(l));
    for (const NodeId end : {link.from, link.to}) {
      if (!seen[end.index()]) appearance.push_back(end);
      seen[end.index()] = true;
    }
    text += fmt::format("{},{},{},{},{}", quoted_cell(topology.node(link.from).name),
                        quoted_cell(topology.node(link.to).name), to_exact_string(link.bandwidth),
                        to_exact_string(link.latency), to_string(link.kind));
    text += cells_of(link_columns, link);
  }
  if (names_say_it_all(topology, appearance)) return text;
  const auto vertex_columns = used(kVertexColumns, topology.node_count(),
                                   [&](std::size_t v) { return topology.node(NodeId(v)); });
  text += "\nvertex,role,kind,host,rack,device_class,memory" + names_of(vertex_columns);
  const auto add = [&](NodeId id) {
    text += vertex_row(topology, id) + cells_of(vertex_columns, topology.node(id));
  };
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    add(topology.node_of(Rank(r)));
  }
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (!topology.rank_of(NodeId(v))) add(NodeId(v));
  }
  return text;
}

}  // namespace rackrail::topology
