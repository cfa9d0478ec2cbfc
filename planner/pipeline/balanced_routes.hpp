// Which of equal routes transfers take, by what links carry then.
//
// A hash of two ranks (topology::Router) puts some of a few large flows on one link and none on
// another: of four hosts of a rack that each fill a quarter of what its leaf has to four spines,
// two may meet, and all wait for these. So where equal routes lead past the link that a schedule
// fills most, its pairs of ranks get others: those that are assigned round-robin
// (topology::EqualRoutes), so that what a leaf's hosts send at one time is on as many cables as it
// can be; then by a descent from there, in turn the one that adds least to Σ_l (load of l / load of
// the fullest before)^16, a sum so steep that it is nearly the fullest link. Where a whole number
// of pairs fits no link, as of six pairs over four cables, each transfer gets one of its own;
// transfers of a pair then go side by side, unless there are very many. What gains nothing stays as
// it was, and so do graphs that switches add in. O(pairs or transfers · equal routes · their links)
// for each round of moves, of which there are 16 at most.
#pragma once

#include <utility>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

/// A pair of ranks whose transfers go over the usual route of the router.
struct RoutedPair {
  Rank src;
  Rank dst;
  RouteId route;
};

/// `graph` with other routes for some of the pairs, each in one route of the graph, if its fullest
/// link then has at least a hundredth less to carry.
plan::TransferGraph with_balanced_routes(plan::TransferGraph graph,
                                         const std::vector<RoutedPair>& pairs,
                                         const topology::Topology& topology,
                                         topology::Router& router);

}  // namespace rackrail::planner
