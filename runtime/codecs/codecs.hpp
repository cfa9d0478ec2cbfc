// The factories of the CPU codecs; runtime/codec.hpp is the door.
#pragma once

#include <memory>

#include "runtime/codec.hpp"

namespace rackrail::runtime {

std::unique_ptr<Codec> make_identity_codec();
std::unique_ptr<Codec> make_fp16_codec();
std::unique_ptr<Codec> make_int8_block_codec(const plan::Codec& descriptor);
std::unique_ptr<Codec> make_top_k_codec(const plan::Codec& descriptor);

/// Throws RuntimeFailure unless `encoded` has the size that the codec gives `elements` floats.
void require_encoded_size(const plan::Codec& codec, std::size_t encoded, std::size_t elements);

}  // namespace rackrail::runtime
