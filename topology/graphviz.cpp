#include <fmt/format.h>

#include <map>
#include <set>

#include "base/parse_units.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology {
namespace {

std::string dot_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string_view shape_of(const Topology& topology, NodeId id) {
  if (topology.rank_of(id)) return "box";
  switch (topology.node(id).kind) {
    case NodeKind::kTor:
    case NodeKind::kSpine:
    case NodeKind::kCore:
    case NodeKind::kNvSwitch:
    case NodeKind::kSwitch:
      return "hexagon";
    default:
      return "ellipse";
  }
}

/// Vertices of each host in a cluster of their own, switches of the network outside.
std::string vertices_text(const Topology& topology) {
  std::map<std::string, std::string> hosts;
  std::string text;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const Node& node = topology.node(NodeId(v));
    const std::string line =
        fmt::format("{} [shape={}];\n", dot_text(node.name), shape_of(topology, NodeId(v)));
    (node.host.empty() ? text : hosts[node.host]) += "  " + line;
  }
  std::size_t number = 0;
  for (const auto& [host, lines] : hosts) {
    text += fmt::format("  subgraph cluster_{} {{\n  label={};\n{}  }}\n", number++, dot_text(host),
                        lines);
  }
  return text;
}

}  // namespace

std::string to_graphviz(const Topology& topology) {
  std::string text = fmt::format("digraph {} {{\n  node [fontsize=10]; edge [fontsize=8];\n",
                                 dot_text(topology.name()));
  text += vertices_text(topology);
  std::set<LinkId> drawn;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    if (!drawn.insert(LinkId(i)).second) continue;
    const std::optional<LinkId> back = way_back(topology, LinkId(i));
    const bool is_both = back && topology.link(*back).bandwidth == link.bandwidth &&
                         topology.link(*back).latency == link.latency;
    if (is_both) drawn.insert(*back);
    text += fmt::format("  {} -> {} [label={}{}];\n", dot_text(topology.node(link.from).name),
                        dot_text(topology.node(link.to).name), dot_text(to_string(link.bandwidth)),
                        is_both ? ", dir=none" : "");
  }
  return text + "}\n";
}

}  // namespace rackrail::topology
