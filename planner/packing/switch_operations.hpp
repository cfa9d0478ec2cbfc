// Trees over ranks and switches as what ranks have switches do: groups of transfers
// (plan/in_network.hpp), one for each arc over which a rank passes something on.
//
// An arc's way may meet others at switches that are not able, and pass one of these twice: such a
// tree is a logical one, whose links carry the bytes once for each arc that is on them.
#pragma once

#include <vector>

#include "planner/packing/priced_paths.hpp"
#include "planner/packing/steiner_tree.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// What a rank has copied to others, or added on its way to it. With one leaf it is a transfer.
struct SwitchOperation {
  Rank root;
  std::vector<Rank> leaves;
  std::vector<topology::Route> routes;  ///< by leaf, as its bytes go
  topology::Route links;                ///< in their order, as often as the bytes pass them
};

/// The operations of a tree from `root` along its cheapest paths, in the order of their
/// dependencies. Switches can carry out all of them.
std::vector<SwitchOperation> operations_of(const topology::Topology& topology,
                                           const PricedPaths& paths, const SteinerTree& tree,
                                           Rank root);

}  // namespace rackrail::planner
