// Paths between ranks and switches that multicast, or reduce, over switches that do not.
//
// Vertices are the ranks, in their order, and behind them the switches that are able. A tree over
// such paths from a rank is what ranks and switches pass on and copy, or, `reversed`, what they add
// and pass on, seen from where the sum ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/packing/arborescence.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class SwitchWays {
 public:
  /// Keeps a reference.
  SwitchWays(const topology::Topology& topology, bool reversed);

  bool is_reversed() const { return is_reversed_; }
  std::size_t size() const { return vertices_.size(); }  ///< vertices
  /// Whether the switch, or rank, may part there what it passes on.
  bool is_able(NodeId node) const { return number_[node.index()] != kPassed; }
  /// The ends of a link as trees see it.
  NodeId near(LinkId link) const;
  NodeId far(LinkId link) const;

  /// Afterwards arcs() are the cheapest paths at these prices of links, which are not negative.
  void find(const std::vector<double>& prices);
  const std::vector<PricedArc>& arcs() const { return arcs_; }
  /// Links of an arc, away from the root.
  const topology::Route& way(std::size_t arc) const { return ways_[arc]; }

 private:
  static constexpr std::uint32_t kPassed = 0xffffffff;

  void find_from(std::uint32_t source, const std::vector<double>& prices);

  const topology::Topology& topology_;
  bool is_reversed_;
  std::vector<NodeId> vertices_;
  std::vector<std::uint32_t> number_;  ///< by node: its vertex, or kPassed
  std::vector<PricedArc> arcs_;
  std::vector<topology::Route> ways_;  ///< by arc
};

}  // namespace rackrail::planner
