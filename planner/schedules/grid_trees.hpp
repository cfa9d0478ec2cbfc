// Trees for an all-reduce on a grid of directly linked ranks, along which sums and copies share
// links: what halves do not reach where there are paths.
//
// The sums of a tree go along all lines of one dimension to the place of its root, then along the
// lines of the next one there, and so on; its copies go the same ways back. So in its first
// dimension either a sum or a copy goes over each link of a path, whatever the root, and in the
// later ones so little that with roots at all places, and trees that begin in each dimension, all
// links of an a × a grid are busy for (a + 1)/2a of the buffer: the least for 2(N − 1) moves of
// each element over 4a(a − 1) links. Reduce-scatter and all-gather one after the other take
// 1 − 1/N: the links of a corner are idle one way in each of them.
//
// Dimensions that are unlike have trees of unequal shares (grid_shares.hpp). N ranks whose last
// dimension has n places have N/n trees that begin in the first one.
#pragma once

#include <cstdint>

#include "planner/forest/joint_forest.hpp"
#include "planner/schedule_family.hpp"
#include "planner/schedules/rank_grid.hpp"

namespace rackrail::planner {

/// Whether there is a path of three or more, the links of whose end are idle one way in halves.
bool has_long_path(const RankGrid& grid);

std::uint64_t grid_tree_count(const RankGrid& grid);

/// The same trees for both halves, without a rate.
AllReduceForests grid_trees(const RankGrid& grid, const ScheduleRequest& request);

}  // namespace rackrail::planner
