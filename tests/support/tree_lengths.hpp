// How deep trees are and how far apart ranks, both in links or both in arcs between ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "planner/packing/forest.hpp"
#include "topology/topology.hpp"

namespace rackrail::test {

/// Links on the longest way from a root of a forest's trees; an arc through switches has several.
inline std::size_t depth_in_links(const planner::Forest& forest) {
  std::size_t deepest = 0;
  for (const planner::Tree& tree : forest.trees) {
    std::vector<std::size_t> depth(tree.arcs.size() + 1);  // by rank
    for (const planner::TreeArc& arc : tree.arcs) {
      depth[arc.to.index()] = depth[arc.from.index()] + forest.routes[arc.route].size();
      deepest = std::max(deepest, depth[arc.to.index()]);
    }
  }
  return deepest;
}

/// Arcs on the longest of the shortest ways between ranks, where an arc is a way that passes no
/// other rank.
inline std::size_t diameter_in_arcs(const topology::Topology& topology) {
  std::size_t diameter = 0;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    std::vector<std::size_t> distance(topology.node_count(), SIZE_MAX);
    std::deque<NodeId> reached{topology.node_of(Rank(r))};
    distance[reached.front().index()] = 0;
    while (!reached.empty()) {
      const NodeId at = reached.front();
      reached.pop_front();
      const bool is_rank = topology.rank_of(at).has_value();
      const std::size_t next = distance[at.index()] + (is_rank ? 1 : 0);  // of arcs begun
      for (const LinkId link : topology.links_out_of(at)) {
        const NodeId to = topology.link(link).to;
        if (next < distance[to.index()]) {
          distance[to.index()] = next;
          if (is_rank) {
            reached.push_back(to);
          } else {
            reached.push_front(to);  // as far as the switch
          }
        }
      }
    }
    for (std::size_t other = 0; other < topology.rank_count(); ++other) {
      diameter = std::max(diameter, distance[topology.node_of(Rank(other)).index()]);
    }
  }
  return diameter;
}

}  // namespace rackrail::test
