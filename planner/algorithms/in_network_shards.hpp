// All-reduces whose sums switches make, shard by shard (in_network.cpp says how): inside groups at
// the member that has the shard, across groups at a root, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// The ranks of a chunk's path, by group; members[0] of all of them sum across.
struct ShardShape {
  std::vector<std::vector<Rank>> groups;
  std::size_t shards() const { return groups[0].size(); }
};

/// How the data of a shard is cut into chunks.
struct ShardCut {
  std::vector<std::uint32_t> weights;  ///< by chunk
  std::size_t roots = 1;               ///< that take turns, of as many groups
  bool in_one_group = false;           ///< or of one, and two members of it
};

/// Equal chunks, each with a root of its own as long as there are groups.
ShardCut even_cut(const ShardShape& shape, std::size_t chunks);
/// Chunks that grow and shrink again, of two members of one group in turn.
ShardCut cut_in_turn();

plan::TransferGraph make_shards(const ScheduleRequest& request, const ShardShape& shape,
                                const ShardCut& cut);
/// Whether switches add what is summed across groups, at the first root.
bool sums_across_in_network(const ScheduleRequest& request, const ShardShape& shape,
                            const ShardCut& cut);

}  // namespace rackrail::planner
