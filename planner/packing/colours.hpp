// Equivalence classes of a cluster's vertices, by colour refinement.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::planner {

/// The class of each node, as a number. Nodes of one class cannot be told apart by being a rank, by
/// rates of links, or by their neighbours' classes (Weisfeiler and Leman, "The reduction of a graph
/// to canonical form", 1968). Nodes of different classes differ; nodes of one class may still
/// differ.
std::vector<std::size_t> colours(const topology::Topology& topology);

/// Whether ranks are of different classes: links that bind then meet others of other rates.
bool are_ranks_unlike(const topology::Topology& topology);

}  // namespace rackrail::planner
