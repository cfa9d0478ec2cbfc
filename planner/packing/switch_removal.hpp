// Replaces switches by direct arcs between terminals, so that as many trees fit as before.
//
// A switch cannot copy, so each unit that enters it leaves it once: what it does is a table of how
// many units go from each input to each output ("edge splitting"). Two methods find the table:
//
//  - exactly: pair by pair, as many units as leave Edmonds' condition true. Possible for switches
//    with as much capacity in as out (Bang-Jensen, Frank, Jackson 1995; Zhao et al., "ForestColl",
//    arXiv 2402.06787). Paths through a switch × terminals max-flows: for tens of ranks. Pairs that
//    get all they can leave few to talk to, and trees become paths; so each is first given what is
//    its share, where few pairs are not what is wanted.
//  - by a guess: evenly, over pairs that look useful, all switches of an equivalence class at once.
//    A guess needs no proof here: the trees that are packed afterwards are the proof.
#pragma once

#include "planner/packing/logical_network.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// How many pairs the units of a switch are given to.
enum class Ways { kFew, kMany };

/// False when fewer trees fit afterwards, which happens where switches have more capacity in than
/// out or the reverse.
[[nodiscard]] bool remove_switches_exactly(LogicalNetwork& network, Ways ways);

/// False when no guess looks right; the network is then half done. Vertices of `network` are the
/// nodes of `topology`.
[[nodiscard]] bool remove_switches_evenly(LogicalNetwork& network,
                                          const topology::Topology& topology);

}  // namespace rackrail::planner
