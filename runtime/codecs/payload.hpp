// What the codecs share: checks of encoded payloads, and values that were not encoded yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/codec.hpp"

namespace rackrail::runtime {

/// Throws RuntimeFailure unless the payload has the size that this many elements encode to.
void check_encoded_size(const plan::Codec& codec, std::span<const std::byte> encoded,
                        std::size_t elements);
/// The same for what the caller of encode() handed over.
void check_encode_buffers(const plan::Codec& codec, std::span<const float> input,
                          std::span<const float> residual, std::span<const std::byte> output);

/// With a residual: residual += input, and returns it; else returns the input.
std::span<const float> compensated(std::span<const float> input, std::span<float> residual);

}  // namespace rackrail::runtime
