// From a network of units to a forest: switches removed, trees packed, routes given.
#pragma once

#include <optional>
#include <vector>

#include "planner/packing/forest.hpp"
#include "planner/packing/logical_network.hpp"

namespace rackrail::planner {

/// Up to so many ranks switches are removed exactly where guesses fail; it takes seconds there.
inline constexpr std::size_t kMostRanksExactly = 48;

/// How switches are removed (planner/packing/switch_removal.hpp).
enum class Removal { kEvenly, kExactlyByMany, kExactly };

/// What is tried in turn: guesses, and exactly where that is allowed and there are few enough
/// ranks; between few pairs the other way round; for fair shares that guess only.
std::vector<Removal> removals_for(const topology::Topology& topology, Pairs pairs,
                                  bool may_be_exact = true);

/// All the trees that the network asks for, or nothing where they were not found. The network's
/// vertices are the nodes of `topology`, its arcs those of its links, turned round with `reversed`.
/// Only `routes` and `trees` of the answer are filled in.
std::optional<Forest> build_forest(const LogicalNetwork& network,
                                   const topology::Topology& topology, bool reversed,
                                   const std::vector<Removal>& removals);

/// Units of trees over each link.
std::vector<std::int64_t> loads_of(const Forest& forest, std::size_t links);

}  // namespace rackrail::planner
