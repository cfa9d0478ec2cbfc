// Whether all ranks end with the same bits when a graph is executed in stages, whatever order a
// collective adds in.
#pragma once

#include <span>

#include "runtime/device/stages.hpp"

namespace rackrail::runtime {

/// Tracks the expression that each rank holds of each chunk, with an unknown for every sum of a
/// collective. True if all ranks end with the same expressions, and also where that is not required
/// (reduce-scatter). Values are told apart by hashes of 64 bits, as in plan/chunk_execution.hpp.
bool all_end_alike(const plan::TransferGraph& graph, const RankGroups& groups,
                   std::span<const Stage> stages);

}  // namespace rackrail::runtime
