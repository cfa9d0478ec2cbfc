#include "planner/placement/hosts.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "topology/attachments.hpp"
#include "topology/flow_network.hpp"
#include "topology/part.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

using topology::Capacity;
using topology::LinkKind;
using topology::Topology;

/// Flow between these ranks and what is outside their machine; GPUs that are not taken pass nothing
/// on.
Bandwidth network_flow(const Topology& topology, const Host& host, const std::vector<Rank>& ranks,
                       bool is_outward) {
  std::map<std::size_t, topology::FlowNetwork::Vertex> vertex_of;
  for (const NodeId node : host.vertices) {
    const auto rank = topology.rank_of(node);
    if (!rank || std::find(ranks.begin(), ranks.end(), *rank) != ranks.end()) {
      const auto next = static_cast<topology::FlowNetwork::Vertex>(vertex_of.size());
      vertex_of.emplace(node.index(), next);
    }
  }
  topology::FlowNetwork network(vertex_of.size());
  const auto source = network.add_vertex();
  const auto sink = network.add_vertex();
  constexpr Capacity kEnough = std::numeric_limits<std::int64_t>::max();
  for (const Rank rank : ranks) {
    network.add_arc(source, vertex_of.at(topology.node_of(rank).index()), kEnough);
  }
  for (const auto& [index, vertex] : vertex_of) {
    const NodeId node{index};
    for (const LinkId id : is_outward ? topology.links_out_of(node) : topology.links_into(node)) {
      const topology::Link& link = topology.link(id);
      const NodeId other = is_outward ? link.to : link.from;
      const auto inside = vertex_of.find(other.index());
      const bool is_own = std::binary_search(host.vertices.begin(), host.vertices.end(), other);
      if (link.kind == LinkKind::kShared || (is_own && inside == vertex_of.end())) {
        continue;
      }
      network.add_arc(vertex, is_own ? inside->second : sink, link.bandwidth.bytes_per_second());
    }
  }
  network.reset();
  return Bandwidth(static_cast<std::int64_t>(network.augment(source, sink, kEnough)));
}

/// Seconds per byte and rank of the best all-gather among these ranks inside their machine.
double inner_ratio(const Topology& topology, const Host& host, const std::vector<Rank>& ranks) {
  if (ranks.size() < 2) {
    return 0;
  }
  std::vector<bool> is_kept(topology.node_count());
  for (const NodeId node : host.vertices) {
    const auto rank = topology.rank_of(node);
    is_kept[node.index()] = !rank || std::find(ranks.begin(), ranks.end(), *rank) != ranks.end();
  }
  try {
    const auto bound = topology::allgather_bound(topology::part_of(topology, is_kept, ranks));
    return static_cast<double>(bound.p) / static_cast<double>(bound.q);
  } catch (const ConfigError&) {  // they meet outside the machine only
    return std::numeric_limits<double>::infinity();
  }
}

Bandwidth total(const Topology& topology, std::span<const LinkId> links) {
  Bandwidth sum;
  for (const LinkId id : links) {
    if (topology.link(id).kind != LinkKind::kShared) {
      sum = sum + topology.link(id).bandwidth;
    }
  }
  return sum;
}

bool has_few_subsets(std::size_t ranks, std::size_t count) {
  constexpr std::size_t kMostSubsets = 3000;
  std::size_t subsets = 1;
  for (std::size_t i = 0; i < std::min(count, ranks - count) && subsets <= kMostSubsets; ++i) {
    subsets = subsets * (ranks - i) / (i + 1);
  }
  return subsets <= kMostSubsets;
}

std::vector<Rank> best_ranks(const Topology& topology, const Host& host, std::size_t count,
                             bool has_network) {
  std::vector<Rank> best(host.ranks.begin(),
                         host.ranks.begin() + static_cast<std::ptrdiff_t>(count));
  if (count == host.ranks.size() || !has_few_subsets(host.ranks.size(), count)) {
    return best;
  }
  std::vector<bool> is_taken(host.ranks.size());
  std::fill_n(is_taken.begin(), count, true);
  std::pair<Bandwidth, double> most(Bandwidth(-1), 0);
  do {  // the first ranks come first
    std::vector<Rank> ranks;
    for (std::size_t i = 0; i < is_taken.size(); ++i) {
      if (is_taken[i]) ranks.push_back(host.ranks[i]);
    }
    const Bandwidth flow = has_network ? std::min(network_flow(topology, host, ranks, true),
                                                  network_flow(topology, host, ranks, false))
                                       : Bandwidth();
    if (flow < most.first) {
      continue;
    }
    const std::pair<Bandwidth, double> value(flow, -inner_ratio(topology, host, ranks));
    if (value > most) {
      most = value;
      best = ranks;
    }
  } while (std::prev_permutation(is_taken.begin(), is_taken.end()));
  return best;
}

}  // namespace

std::vector<Host> hosts_of(const Topology& topology) {
  std::vector<Host> hosts;
  std::map<std::string, std::size_t> number;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const topology::Node& node = topology.node(topology.node_of(Rank(r)));
    const std::string& name = node.host.empty() ? node.name : node.host;
    const auto [it, is_new] = number.emplace(name, hosts.size());
    if (is_new) {
      hosts.emplace_back();
      hosts.back().name = name;
      hosts.back().rack = node.rack;
    }
    hosts[it->second].ranks.emplace_back(r);
  }
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const topology::Node& node = topology.node(NodeId(v));
    const auto found = number.find(node.host.empty() ? node.name : node.host);
    if (found != number.end()) {
      hosts[found->second].vertices.emplace_back(v);
    }
  }
  const std::vector<topology::Attachment> attached = topology::attachments(topology);
  for (Host& host : hosts) {
    std::stable_sort(host.ranks.begin(), host.ranks.end(),
                     [&](Rank a, Rank b) { return attached[a.index()] < attached[b.index()]; });
  }
  return hosts;
}

void take_ranks(const Topology& topology, Host& host, std::size_t count, bool has_network) {
  host.ranks = best_ranks(topology, host, count, has_network);
  host.out = network_flow(topology, host, host.ranks, true);
  host.in = network_flow(topology, host, host.ranks, false);
  host.narrowest_in = Bandwidth(std::numeric_limits<std::int64_t>::max());
  host.narrowest_out = host.narrowest_in;
  for (const Rank rank : host.ranks) {
    const NodeId node = topology.node_of(rank);
    host.narrowest_in = std::min(host.narrowest_in, total(topology, topology.links_into(node)));
    host.narrowest_out = std::min(host.narrowest_out, total(topology, topology.links_out_of(node)));
  }
}

}  // namespace rackrail::planner
