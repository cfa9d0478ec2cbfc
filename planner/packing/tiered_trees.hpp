// Cheapest trees of two tiers: between hosts, and within each from the rank that has it first.
//
// Model. A host is entered once. Within it data goes from there straight to all its ranks, or over
// one of them to the others; between hosts it takes the cheapest path between any of their ranks.
// What a host costs depends only on where it is entered, so the tree between hosts is a cheapest
// arborescence (arborescence.hpp) whose arcs cost their path and the host behind it. Such trees are
// a few arcs deep, and what ranks of a host send each other is even where there are many of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/packing/arborescence.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class TieredTrees {
 public:
  /// What cheapest() finds costs at most 1/this times what the cheapest tree of two tiers does.
  static constexpr double kNearlyCheapest = 0.999;

  /// Ranks of a vertex without a host are hosts of their own.
  explicit TieredTrees(const topology::Topology& topology);

  /// Whether a host has several ranks: else the tiers are one.
  bool has_tiers() const { return hosts_.size() < host_of_.size(); }

  /// The arcs of a tree from the root, as indices into the given arcs, parents before children.
  /// None where arcs are missing: there should be one from every rank of a host to each other rank
  /// of it.
  std::optional<std::vector<std::uint32_t>> cheapest(std::uint32_t root,
                                                     const std::vector<PricedArc>& ways) const;

 private:
  class Search;

  std::vector<std::vector<std::uint32_t>> hosts_;  ///< the ranks of each
  std::vector<std::uint32_t> host_of_;             ///< by rank
};

}  // namespace rackrail::planner
