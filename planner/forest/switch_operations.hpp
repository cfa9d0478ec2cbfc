// Trees over ranks and switches as what ranks have switches do: groups of transfers
// (plan/in_network.hpp), one for each link over which a rank passes something on.
#pragma once

#include <vector>

#include "planner/forest/steiner_tree.hpp"
#include "planner/forest/switch_ways.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// What a rank has copied to others, or added on its way to it. With one leaf it is a transfer.
struct SwitchOperation {
  Rank root;
  std::vector<Rank> leaves;
  std::vector<topology::Route> routes;  ///< by leaf, as its bytes go
  bool is_rest = false;                 ///< of a tree's arc: what others could not be one with
};

/// Of a tree from `root` over `ways`, those first that others wait for. Where its ways meet at a
/// switch that cannot part them, it is divided: switches can carry out all that is returned.
std::vector<SwitchOperation> operations_of(const topology::Topology& topology,
                                           const SwitchWays& ways, const SteinerTree& tree,
                                           Rank root);

/// Each link of its routes once.
std::vector<LinkId> links_of(const SwitchOperation& operation);

}  // namespace rackrail::planner
