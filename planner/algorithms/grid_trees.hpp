// Trees for an all-reduce on a grid of directly linked ranks, along which sums and copies share
// links: what halves do not reach where there are paths.
//
// The sums of a tree go along all lines of one dimension to the place of its root, then along the
// lines of the next one there, and so on; its copies go the same paths back. So in its first
// dimension either a sum or a copy goes over each link of a path, whatever the root, and in the
// later ones so little that with roots at all places, and trees that begin in each dimension, all
// links of an a × a grid are busy for (a + 1)/2a of the buffer: the least for 2(N − 1) moves of
// each element over 4a(a − 1) links. Reduce-scatter and all-gather one after the other take 1 −
// 1/N: the links of a corner are idle one way in each of them.
//
// Dimensions that differ have trees of unequal shares (grid_shares.hpp), which reach what
// partitions of the grid into lines and layers allow. In its last dimension a tree is one line. On
// a path either a sum or a copy goes over each link of it, so one root in the middle does; on a
// ring one link is left out, and only with roots at all places they are as busy. N ranks whose last
// dimension has n places have N/n trees of one order, or N.
//
// Pipelining. What goes from one end of the grid to the other passes its diameter of links, one
// message after the other, while a link has as many messages to send as there may be transfers for:
// on large grids the latter decides what all of it takes over the least. So transfers go in slices
// there, in an order that is made for these (Cuts::slices), and along later dimensions, where trees
// send little, in messages that are smaller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/rank_grid.hpp"
#include "planner/pipeline/collective_form.hpp"

namespace rackrail::planner {

/// Whether there is a path of three or more, the links of whose end are idle one way in halves.
bool has_long_path(const RankGrid& grid);

struct GridTreeOptions {
  std::size_t rounds = 1;     ///< pieces of a tree of mean share; others have more or fewer
  bool are_all_round = true;  ///< roots at all places of a last dimension that is a ring
  std::uint32_t slices = 1;   ///< of the largest transfers: their order is made for them
};

/// An all-reduce.
plan::TransferGraph make_grid_trees(const RankGrid& grid, const ScheduleRequest& request,
                                    const GridTreeOptions& options);

/// How many transfers it has.
std::uint64_t grid_tree_transfers(const RankGrid& grid, const topology::Topology& topology,
                                  const GridTreeOptions& options);

/// For the buckets of a step: in few rounds, and in more where the request's transfers and rounds
/// allow it; none where there are none.
std::vector<plan::TransferGraph> grid_trees_of_buckets(const RankGrid& grid,
                                                       const ScheduleRequest& request);

/// In ever more rounds, as many as a plan may have transfers for, or a search of one size; none
/// where there are none. The request's topology and router must outlive them.
std::vector<CollectiveForm> grid_tree_forms(const RankGrid& grid, const ScheduleRequest& request);

}  // namespace rackrail::planner
