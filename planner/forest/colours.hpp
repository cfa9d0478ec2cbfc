// Which vertices of a cluster look alike.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::planner {

/// Of each node a number that it shares with those that neither being a rank, nor rates
/// of links, nor neighbours, nor neighbours' neighbours tell apart from it (Weisfeiler and Leman,
/// "The reduction of a graph to canonical form", 1968). Nodes of different colours are different;
/// those of one may still be.
std::vector<std::size_t> colours(const topology::Topology& topology);

/// Whether ranks have different colours: links that bind then meet others of other rates.
bool are_ranks_unlike(const topology::Topology& topology);

}  // namespace rackrail::planner
