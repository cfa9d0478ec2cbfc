// A transfer graph as an execution plan of MSCCL++.
//
// The chunks are divided among groups of thread blocks (plan/mscclpp/messages.hpp), which never
// wait for each other, so dependencies between chunks of two groups are left out: they only pace.
// Where there are few chunks, each has a group for every slice of it. Blocks wait for blocks of
// other GPUs, so all of a GPU must run at once; there are about kUsualBlocks, and more, up to
// kMostBlocks, only where a block would have more operations than the executor takes.
//
// Ranks of one host have memory channels to each other, others port channels.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/mscclpp/program.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::plan::mscclpp {

inline constexpr std::size_t kUsualBlocks = 32;  ///< per GPU
inline constexpr std::size_t kMostBlocks = 64;   ///< fewer than any GPU for training has processors

/// `hosts` by rank: equal for ranks of one host. `name` is of the program: the executor tells
/// programs apart by it. Throws ConfigError for what the format does not have (codecs, parts of
/// ranks that are not equal, chunks of more than 4,096 units), and where a thread block exceeds a
/// limit of the executor.
Program from_graph(const TransferGraph& graph, std::span<const std::uint32_t> hosts,
                   const std::string& name);

}  // namespace rackrail::plan::mscclpp
