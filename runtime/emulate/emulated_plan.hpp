// A plan for a cluster as it is executed on the emulated network, and as it is simulated there.
//
// Its ranks are the same, so are its transfers; but the network is slower by the scale, and of
// other links. A route becomes the way from its source to its destination through the data network
// that it enters first: bridges forward along a tree, so there is one.
#pragma once

#include "plan/plan.hpp"
#include "runtime/emulate/network_plan.hpp"
#include "topology/topology.hpp"

namespace rackrail::runtime::emulate {

/// For execution: with the rates of routes (rule 8 of plan/transfer_graph.hpp) that are the same
/// share of the links as they are in the cluster, of which headers take theirs (kPayloadShare).
plan::Plan emulated_plan(plan::Plan plan, const NetworkPlan& network);

/// For simulation: the same, over `emulated`, which emulated_topology made of `network`. The plan
/// is one for the topology that `network` was planned for.
plan::Plan emulated_plan(plan::Plan plan, const NetworkPlan& network,
                         const topology::Topology& emulated);

}  // namespace rackrail::runtime::emulate
