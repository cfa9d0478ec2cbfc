// Codecs at work: floats ↔ wire bytes. What a codec is, its arithmetic on the CPU included, is one
// file of plan/codecs/; to add one see plan/README.md.
#pragma once

#include <memory>

#include "plan/codecs/arithmetic.hpp"

namespace rackrail::runtime {

using Codec = plan::CodecArithmetic;
using plan::EncodeKey;

/// CPU implementation; thread-safe, stateless.
inline std::unique_ptr<Codec> make_codec(const plan::Codec& descriptor) {
  return plan::make_codec_arithmetic(descriptor);
}

}  // namespace rackrail::runtime
