// Gradients to encode on a GPU, and what is done with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rackrail::bench {

/// Normally distributed, of another size in each of many layers; the same for the same seed. Made
/// by all cores.
std::vector<float> random_gradients(std::size_t size, std::uint64_t seed);

}  // namespace rackrail::bench
