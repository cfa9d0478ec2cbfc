// Codecs of 8-bit codes with one FP32 scale per block of elements.
//
// Layout of n elements: ⌈n/block⌉ scales (FP32), then n codes (bytes). Blocks are counted from the
// first element of the encoded range. A block with a NaN or an infinity has the scale NaN and
// decodes to NaN.
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace rackrail::plan {

inline constexpr std::uint32_t kLargestBlock = 1U << 20U;

/// n + 4·⌈n/block⌉.
Bytes block_scaled_size(std::uint32_t block, std::int64_t elements);

}  // namespace rackrail::plan
