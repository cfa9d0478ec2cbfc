// What trees load links with, counted in tests once more, so that forests are not believed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "planner/packing/forest.hpp"
#include "planner/packing/joint_forest.hpp"
#include "topology/topology.hpp"

namespace rackrail::test {

/// Adds to each link what part of the data the trees carry over it, of `whole` in all.
inline void add_loads(const planner::Forest& forest, double whole, std::vector<double>& loads) {
  double units = 0;
  for (const planner::Tree& tree : forest.trees) {
    units += static_cast<double>(tree.units);
  }
  for (const planner::Tree& tree : forest.trees) {
    for (const planner::TreeArc& arc : tree.arcs) {
      for (const LinkId link : forest.routes[arc.route]) {
        loads[link.index()] += whole * static_cast<double>(tree.units) / units;
      }
    }
  }
}

/// Bytes per second of the whole, of which links carry so much each.
inline double rate_of_worst_link(const topology::Topology& topology,
                                 const std::vector<double>& loads) {
  double worst = 1e300;
  for (std::size_t l = 0; l < loads.size(); ++l) {
    if (loads[l] > 0) {
      const auto bandwidth =
          static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
      worst = std::min(worst, bandwidth / loads[l]);
    }
  }
  return worst;
}

/// Bytes per second of an all-gather's result, or of a reduce-scatter's buffer.
inline double rate_of_worst_link(const topology::Topology& topology,
                                 const planner::Forest& forest) {
  std::vector<double> loads(topology.link_count());
  add_loads(forest, 1, loads);
  return rate_of_worst_link(topology, loads);
}

/// Of an all-reduce's buffer: both halves share the links.
inline double rate_of_worst_link(const topology::Topology& topology,
                                 const planner::AllReduceForests& forests) {
  std::vector<double> loads(topology.link_count());
  add_loads(forests.reduction, 1, loads);
  add_loads(forests.broadcast, 1, loads);
  return rate_of_worst_link(topology, loads);
}

/// Whether every tree enters each rank but its root once, parents first, by routes that lead from
/// parent to child, or `reversed`, from child to parent.
inline bool do_trees_span(const topology::Topology& topology, const planner::Forest& forest,
                          bool reversed) {
  for (const planner::Tree& tree : forest.trees) {
    std::vector<bool> has(topology.rank_count());
    has[tree.root.index()] = true;
    for (const planner::TreeArc& arc : tree.arcs) {
      if (!has[arc.from.index()] || has[arc.to.index()]) {
        return false;
      }
      has[arc.to.index()] = true;
      NodeId here = topology.node_of(reversed ? arc.to : arc.from);
      for (const LinkId link : forest.routes[arc.route]) {
        if (topology.link(link).from != here) {
          return false;
        }
        here = topology.link(link).to;
      }
      if (here != topology.node_of(reversed ? arc.from : arc.to)) {
        return false;
      }
    }
    if (!std::ranges::all_of(has, [](bool is_there) { return is_there; })) {
      return false;
    }
  }
  return !forest.trees.empty();
}

/// Arcs on the longest way from a root.
inline std::size_t longest_way(const planner::Forest& forest, std::size_t ranks) {
  std::size_t longest = 0;
  for (const planner::Tree& tree : forest.trees) {
    std::vector<std::size_t> arcs(ranks);
    for (const planner::TreeArc& arc : tree.arcs) {
      arcs[arc.to.index()] = arcs[arc.from.index()] + 1;
      longest = std::max(longest, arcs[arc.to.index()]);
    }
  }
  return longest;
}

/// Whether as much is summed at each rank as is broadcast from there.
inline bool do_roots_agree(const topology::Topology& topology,
                           const planner::AllReduceForests& forests) {
  const auto shares = [&](const planner::Forest& forest) {
    std::vector<double> by_rank(topology.rank_count());
    double units = 0;
    for (const planner::Tree& tree : forest.trees) {
      units += static_cast<double>(tree.units);
      by_rank[tree.root.index()] += static_cast<double>(tree.units);
    }
    for (double& share : by_rank) {
      share /= units;
    }
    return by_rank;
  };
  return std::ranges::equal(shares(forests.reduction), shares(forests.broadcast),
                            [](double a, double b) { return a - b < 1e-9 && b - a < 1e-9; });
}

}  // namespace rackrail::test
