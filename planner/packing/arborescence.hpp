// Cheapest spanning trees of a directed graph, all arcs away from a root.
//
// Every vertex takes its cheapest arc in; a cycle of such arcs is contracted to one vertex, whose
// arcs in cost what they add to the one that they replace, and so on until there is none (Chu and
// Liu, "On the shortest arborescence of a directed graph", 1965; Edmonds, "Optimum branchings",
// 1967). O(vertices · arcs), in practice a few passes over the arcs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rackrail::planner {

struct PricedArc {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  double price = 0;  ///< not negative
};

/// The arc into each vertex, as an index into `arcs`; of the root it says nothing. None where the
/// root does not reach all of `size` vertices. Of equal trees that of the first arcs.
std::optional<std::vector<std::uint32_t>> cheapest_tree(std::size_t size, std::uint32_t root,
                                                        const std::vector<PricedArc>& arcs);

}  // namespace rackrail::planner
