#include "topology/remove.hpp"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/error.hpp"

namespace rackrail::topology {

namespace {

std::vector<bool> vertices_of(const Topology& topology, std::span<const std::string> hosts) {
  std::vector<bool> meant(topology.node_count(), false);
  for (const std::string& host : hosts) {
    bool found = false;
    for (std::size_t i = 0; i < meant.size(); ++i) {
      const Node& node = topology.node(NodeId(i));
      if (node.host == host || node.name == host) {
        meant[i] = true;
        found = true;
      }
    }
    if (!found) {
      throw ConfigError(ErrorContext{"", "cluster '" + topology.name() + "'",
                                     "no host '" + host + "'", "the name of a host"});
    }
  }
  return meant;
}

}  // namespace

Topology without(const Topology& topology, std::span<const std::string> hosts,
                 std::span<const LinkId> links) {
  const std::vector<bool> is_gone = vertices_of(topology, hosts);
  std::vector<bool> is_cut(topology.link_count(), false);
  for (const LinkId link : links) {
    is_cut[link.index()] = true;
  }
  Topology rest(topology.name());
  rest.set_measured_processor(topology.measured_processor());
  std::vector<std::optional<NodeId>> node_of(topology.node_count());
  for (std::size_t i = 0; i < is_gone.size(); ++i) {
    if (!is_gone[i]) {
      node_of[i] = rest.add_node(topology.node(NodeId(i)));
    }
  }
  std::vector<std::optional<LinkId>> link_of(topology.link_count());
  for (std::size_t i = 0; i < is_cut.size(); ++i) {
    Link link = topology.link(LinkId(i));
    if (!is_cut[i] && node_of[link.from.index()] && node_of[link.to.index()]) {
      link.from = *node_of[link.from.index()];
      link.to = *node_of[link.to.index()];
      link_of[i] = rest.add_link(link);
    }
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const auto node = node_of[topology.node_of(Rank(r)).index()];
    if (!node) {
      continue;
    }
    const Rank rank = rest.add_rank(*node);
    const auto processor = topology.processor_of(Rank(r));
    if (processor && link_of[processor->index()]) {
      rest.set_processor(rank, *link_of[processor->index()]);
    }
  }
  if (rest.rank_count() < 2) {
    throw ConfigError(ErrorContext{"", "cluster '" + topology.name() + "'",
                                   fmt::format("{} ranks left", rest.rank_count()),
                                   "at least two after what is taken away"});
  }
  return rest;
}

}  // namespace rackrail::topology
