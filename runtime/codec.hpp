// Codecs at work: floats ↔ wire bytes. What a codec *is* (name, sizes, error model) is
// plan/codec.hpp.
//
// To add one: a kind in plan/codec.hpp, runtime/codecs/<name>.cpp with one factory, a line in
// runtime/codecs/registry.cpp; tests/conformance/codec_test.cpp then runs over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plan/codec.hpp"

namespace rackrail::runtime {

/// Identifies the random numbers of one encoding: the same key and element index give the same
/// rounding on every rank and device (base/random.hpp).
struct EncodeKey {
  std::uint64_t stream = 0;        ///< from seed, step, bucket
  std::int64_t first_element = 0;  ///< index in the bucket of input[0]
};

class Codec {
 public:
  virtual ~Codec() = default;
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  virtual const plan::Codec& descriptor() const = 0;
  /// Writes exactly plan::encoded_size(descriptor(), input.size()) bytes into `output`.
  /// With a `residual` (same size as input, else empty): encodes input + residual and leaves
  /// residual = (input + residual) − decoded. Not-a-number inputs stay not-a-number where the
  /// format has one; 8-bit blocks with a NaN or infinity decode to NaN.
  virtual void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
                      std::span<std::byte> output) const = 0;
  /// output = D(encoded). Throws RuntimeFailure when `encoded` has the wrong size or impossible
  /// content (indices out of range).
  virtual void decode(std::span<const std::byte> encoded, std::span<float> output) const = 0;
  /// output += D(encoded).
  virtual void decode_add(std::span<const std::byte> encoded, std::span<float> output) const = 0;
};

/// CPU implementation; thread-safe, stateless.
std::unique_ptr<Codec> make_codec(const plan::Codec& descriptor);

}  // namespace rackrail::runtime
