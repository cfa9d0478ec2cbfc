// Bucket algorithm for grids and tori of directly linked ranks: rings in every dimension at once.
//
// The buffer is divided into parts, one for each dimension, twice as many where there are rings.
// Part p is scattered along dimension p, what is left of it along dimension p + 1, and so on around
// all dimensions, and gathered back in the reverse order. As every part starts in another
// dimension and twin parts go round rings in opposite directions, all links are busy in every
// phase: on a torus of N ranks with D equal dimensions a link carries (1 − 1/N)/(2D) of the buffer
// in each half, the least that the 2D links of a rank can do (Jain, Sabharwal, "Optimal bucket
// algorithms for large MPI collectives on torus interconnects", ICS 2010). Either half alone is a
// reduce-scatter or an all-gather: on a grid of paths the links of a corner are busy all the time.
//
// Along a ring the sum of a range starts next to its owner and goes once around; along a path it
// comes from both ends, and the first link carries all ranges but its own rank's, as it must.
//
// Where dimensions differ, parts of unequal weights load all links equally (grid_shares.hpp), but
// then they do not change dimensions together. So what a rank passes on along its next dimension
// may go in blocks: what it has had from the beginning at once, then what came first, then ever
// more (gathering; the reverse when scattering). Messages are as many times more.
//
// A phase along a dimension of n makes N·(n − 1) transfers for each part and block, however much
// each of them moves.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/rank_grid.hpp"

namespace rackrail::planner {

struct BucketOptions {
  plan::Collective what = plan::Collective::kAllReduce;
  /// Of the parts, by the dimension in which each is scattered first; empty: by the number of links
  /// that a rank has there (one in a path's bottleneck).
  std::vector<std::uint32_t> weights = {};
  /// Of blocks from one to the next, 2 at least; 0: all at once.
  std::uint32_t growth = 0;
};

/// Every rank owns as much of the buffer as the others. Codecs must survive many hops.
plan::TransferGraph make_buckets(const RankGrid& grid, const ScheduleRequest& request,
                                 const BucketOptions& options = {});

/// How many transfers it has.
std::uint64_t bucket_transfers(const RankGrid& grid, const BucketOptions& options);

/// In which dimensions the part that starts in one is scattered, one after the other; gathered in
/// the reverse order.
std::vector<std::uint32_t> scatter_order(const RankGrid& grid, std::uint32_t first);

}  // namespace rackrail::planner
