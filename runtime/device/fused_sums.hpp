// Sums that are sent on encoded, made by the kernel that encodes them.
//
// Where payloads of one range and codec are decoded and added, and the sum is then encoded in that
// codec (a rank that gathers the shards of others, a ring that passes partial sums on), one kernel
// can read gradient and payloads, add in the same order and write the codes: the sum itself is
// neither written nor read again. That is right where nobody looks at the sum in memory:
//  - of copies the sender goes on with what the codes decode to, which overwrites it;
//  - of reductions, where what comes next for the range overwrites all of it.
// Additions keep their order, so all bits stay what they were.
//
// O(operations²) at worst, once per bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "runtime/device/device_program.hpp"

namespace rackrail::runtime {

/// Payloads that one operation takes at most.
inline constexpr std::size_t kMostFusedPayloads = 16;

/// Moves decodings into the encodings that they are for (EncodeOperation::addends), of codecs with
/// a kernel for that, and removes them. `has_kernel` is asked by index into the graph's codecs.
void fuse_sums(DeviceProgram& program, const std::function<bool(std::uint8_t codec)>& has_kernel);

}  // namespace rackrail::runtime
