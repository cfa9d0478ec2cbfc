#include "runtime/emulate/contraction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace rackrail::runtime::emulate {
namespace {

using Neighbours = std::vector<std::set<std::size_t>>;

Neighbours all_neighbours(const Contraction& graph) {
  Neighbours result(graph.vertices.size());
  for (const auto& [ends, edge] : graph.edges) {
    result[ends.first].insert(ends.second);
    result[ends.second].insert(ends.first);
  }
  return result;
}

/// A machine is everything with its name; a rank outside of any machine is one by itself.
Contraction stations_of(const topology::Topology& topology) {
  Contraction graph;
  std::map<std::string, std::size_t> machines;
  std::vector<std::size_t>& vertex_of_node = graph.vertex_of_node;
  bool has_inside = false;
  for (std::size_t i = 0; i < topology.node_count(); ++i) {
    const topology::Node& node = topology.node(NodeId(i));
    const bool is_host = !node.host.empty() || topology.rank_of(NodeId(i)).has_value();
    const std::string& name = node.host.empty() ? node.name : node.host;
    std::size_t vertex = graph.vertices.size();
    if (is_host) {
      vertex = machines.emplace(name, vertex).first->second;
    }
    if (vertex == graph.vertices.size()) {
      graph.vertices.push_back({.name = name, .is_host = is_host});
    }
    vertex_of_node.push_back(vertex);
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const std::size_t vertex = vertex_of_node[topology.node_of(Rank(r)).index()];
    ++graph.vertices[vertex].ranks;
    graph.vertex_of_rank.push_back(vertex);
  }
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    const std::size_t from = vertex_of_node[link.from.index()];
    const std::size_t to = vertex_of_node[link.to.index()];
    if (from == to) {
      has_inside = true;
      continue;
    }
    Contraction::Edge& edge = graph.edges[{from, to}];
    edge.rate = edge.rate + link.bandwidth;
    edge.tier = link.tier;
  }
  if (has_inside) {
    graph.notes.emplace_back("links inside machines (NVLink, PCIe) are not emulated");
  }
  return graph;
}

void require_both_directions(const Contraction& graph) {
  for (const auto& [ends, edge] : graph.edges) {
    if (!graph.edges.contains({ends.second, ends.first})) {
      throw ConfigError(ErrorContext{
          .file = "",
          .where = "links",
          .found = fmt::format("a link from {} to {} and none back",
                               graph.vertices[ends.first].name, graph.vertices[ends.second].name),
          .expected = "links of both directions: TCP needs them"});
    }
  }
}

void remove_vertex(Contraction& graph, std::size_t vertex) {
  graph.vertices[vertex].is_gone = true;
  std::erase_if(graph.edges, [&](const auto& entry) {
    return entry.first.first == vertex || entry.first.second == vertex;
  });
}

/// Without ranks and with at most one neighbour: no traffic of ranks passes there.
void prune(Contraction& graph) {
  bool is_changed = true;
  while (is_changed) {
    is_changed = false;
    const Neighbours neighbours = all_neighbours(graph);
    for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
      const Contraction::Vertex& vertex = graph.vertices[v];
      if (!vertex.is_gone && vertex.ranks == 0 && neighbours[v].size() <= 1) {
        remove_vertex(graph, v);
        is_changed = true;
      }
    }
  }
}

/// Switches that reach each other without passing a machine are one network.
void find_networks(Contraction& graph) {
  const Neighbours neighbours = all_neighbours(graph);
  std::size_t networks = 0;
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const auto is_new = [&](std::size_t s) {
      const Contraction::Vertex& vertex = graph.vertices[s];
      return !vertex.is_gone && !vertex.is_host && !vertex.network;
    };
    if (!is_new(v)) {
      continue;
    }
    std::vector<std::size_t> reached = {v};
    graph.vertices[v].network = networks;
    while (!reached.empty()) {
      const std::size_t at = reached.back();
      reached.pop_back();
      for (const std::size_t next : neighbours[at]) {
        if (is_new(next)) {
          graph.vertices[next].network = networks;
          reached.push_back(next);
        }
      }
    }
    ++networks;
  }
}

void merge(Contraction& graph, const std::vector<std::size_t>& group,
           const std::set<std::size_t>& neighbours) {
  std::vector<std::string> names;
  names.reserve(group.size());
  for (const std::size_t v : group) {
    names.push_back(graph.vertices[v].name);
  }
  const std::size_t kept = group.front();
  for (const std::size_t v : group) {
    if (v == kept) {
      continue;
    }
    for (const std::size_t n : neighbours) {
      graph.edges[{kept, n}].rate = graph.edges[{kept, n}].rate + graph.edges[{v, n}].rate;
      graph.edges[{n, kept}].rate = graph.edges[{n, kept}].rate + graph.edges[{n, v}].rate;
    }
    remove_vertex(graph, v);
  }
  graph.notes.push_back(
      fmt::format("{} are one switch here, with the sum of their rates: bridges do not route",
                  fmt::join(names, ", ")));
}

/// Merges one group of switches of a network with the same neighbours; whether there was one.
bool merge_some(Contraction& graph) {
  const Neighbours neighbours = all_neighbours(graph);
  using Likeness = std::pair<std::set<std::size_t>, std::optional<std::size_t>>;
  std::map<Likeness, std::vector<std::size_t>> groups;
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    if (!graph.vertices[v].is_gone && !graph.vertices[v].is_host) {
      groups[{neighbours[v], graph.vertices[v].network}].push_back(v);
    }
  }
  for (const auto& [likeness, group] : groups) {
    if (group.size() > 1) {
      merge(graph, group, likeness.first);
      return true;
    }
  }
  return false;
}

}  // namespace

std::set<std::size_t> Contraction::neighbours(std::size_t vertex) const {
  std::set<std::size_t> result;
  for (const auto& [ends, edge] : edges) {
    if (ends.first == vertex) {
      result.insert(ends.second);
    }
  }
  return result;
}

Contraction contract(const topology::Topology& topology) {
  Contraction graph = stations_of(topology);
  require_both_directions(graph);
  prune(graph);
  find_networks(graph);
  while (merge_some(graph)) {
    prune(graph);  // what joined the merged ones alone leads nowhere now
  }
  return graph;
}

}  // namespace rackrail::runtime::emulate
