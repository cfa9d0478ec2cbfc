// A transfer graph as an MSCCL program.
//
// Each pair of ranks has thread blocks of its own at both ends, one for every kMostSteps transfers,
// whose steps are in the order of ids; a step waits for the latest step of each other block that
// its transfer depends on, by `nop`s where there are several. Additions into one chunk follow their
// ids. So nothing waits for what comes after it, and connections may hold as little as one message.
#pragma once

#include <string>

#include "plan/msccl/program.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::plan::msccl {

// Limits of msccl-executor-nccl (src/misc/msccl/msccl_parser.cc).
inline constexpr std::size_t kMostSteps = 256;  ///< per thread block
inline constexpr int kMostChannels = 32;
inline constexpr int kMostCount = 71;  ///< chunks of a step
inline constexpr int kMostPeers = 32;  ///< blocks of a channel that send, and that receive

/// Works in place. Throws ConfigError for what the format does not have: codecs, mutual sums, parts
/// of ranks that are not equal, more channels, and chunks so unequal that the smallest does not
/// divide the others by a program of 4,096 chunks.
Program from_graph(const TransferGraph& graph);

}  // namespace rackrail::plan::msccl
