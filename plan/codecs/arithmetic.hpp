// Codecs at work: floats ↔ wire bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plan/codec.hpp"

namespace rackrail::plan {

/// Identifies the random numbers of one encoding: the same key and element index give the same
/// rounding on every rank and device (base/random.hpp).
struct EncodeKey {
  std::uint64_t stream = 0;        ///< from seed, step, bucket
  std::int64_t first_element = 0;  ///< index in the bucket of input[0]
};

class CodecArithmetic {
 public:
  virtual ~CodecArithmetic() = default;
  CodecArithmetic() = default;
  CodecArithmetic(const CodecArithmetic&) = delete;
  CodecArithmetic& operator=(const CodecArithmetic&) = delete;

  virtual const Codec& descriptor() const = 0;
  /// Writes exactly encoded_size(descriptor(), input.size()) bytes into `output`.
  /// With a `residual` (same size as input, else empty): encodes input + residual and leaves
  /// residual = (input + residual) − decoded. Not-a-number inputs stay not-a-number where the
  /// format has one and sends them; blocks of 8 bits with a NaN or infinity decode to NaN.
  virtual void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
                      std::span<std::byte> output) const = 0;
  /// output = D(encoded). Throws RuntimeFailure when `encoded` has the wrong size or impossible
  /// content (indices out of range).
  virtual void decode(std::span<const std::byte> encoded, std::span<float> output) const = 0;
  /// output += D(encoded).
  virtual void decode_add(std::span<const std::byte> encoded, std::span<float> output) const = 0;
};

/// CPU implementation, with the best vector instructions of this machine; thread-safe, stateless.
/// Throws RuntimeFailure for parameters outside their limits.
std::unique_ptr<CodecArithmetic> make_codec_arithmetic(const Codec& codec);

}  // namespace rackrail::plan
