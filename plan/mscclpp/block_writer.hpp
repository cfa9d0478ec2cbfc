// One thread block of one GPU: the operations for what its rank does in a group.
//
// First each rank tells those who send to it that it has begun, so that nothing is written before.
// Then phase by phase: puts, a signal to each peer, waits, additions. What is to be added arrives
// in scratch, in a place of its own. A put over a port channel ends with a flush, so its source may
// be overwritten by whatever follows. Each rank awaits all that is sent to it, so nothing is left
// over for the next launch.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "plan/mscclpp/messages.hpp"
#include "plan/mscclpp/program.hpp"

namespace rackrail::plan::mscclpp {

/// A block whose channels and buffers are still named by what they lead to.
struct BlockDraft {
  std::vector<Operation> operations;
  ByType<std::vector<int>> peers;             ///< ranks, ascending; a channel to each
  ByType<std::vector<RemoteBuffer>> buffers;  ///< in order of use
};

/// `hosts` by rank; `buffer` is the one in which the collective works.
BlockDraft write_block(const Group& group, Rank rank, std::span<const std::uint32_t> hosts,
                       Buffer buffer);

}  // namespace rackrail::plan::mscclpp
