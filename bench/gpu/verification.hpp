// Codecs on a GPU against those on the CPU, at sizes that fill the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/codec.hpp"

namespace rackrail::bench {

struct Verification {
  std::string codec;
  std::string what;
  std::string problem;  ///< empty where all bytes are the same
};

/// Of a codec that has kernels: encoding with and without feedback, decoding, adding, reducing, and
/// encoding in a graph that is replayed. Outputs are poisoned before. Throws CudaError.
std::vector<Verification> verify_codec(const plan::Codec& codec, std::size_t elements,
                                       std::uint64_t seed);

}  // namespace rackrail::bench
