// What the codecs share on a CPU: checks of buffers, and values that were not encoded yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/codecs/arithmetic.hpp"

namespace rackrail::plan {

class CpuArithmetic : public CodecArithmetic {
 public:
  explicit CpuArithmetic(const Codec& descriptor) : descriptor_(descriptor) {}

  const Codec& descriptor() const final { return descriptor_; }

 protected:
  /// Throws RuntimeFailure unless the payload has the size that this many elements encode to.
  void check_encoded_size(std::span<const std::byte> encoded, std::size_t elements) const;
  /// The same for what the caller of encode() handed over.
  void check_encode_buffers(std::span<const float> input, std::span<const float> residual,
                            std::span<const std::byte> output) const;
  /// With a residual: residual += input, and returns it; else returns the input.
  static std::span<const float> compensated(std::span<const float> input,
                                            std::span<float> residual);

 private:
  Codec descriptor_;
};

/// sum += addend, where `addend` is FP32 as bytes.
void add(std::span<float> sum, std::span<const std::byte> addend);

/// Bits of the largest |value|, as an integer: order of magnitude, then infinity, then NaN.
std::uint32_t largest_magnitude(std::span<const float> values);

/// Bits of FP32's infinity; larger magnitudes are not numbers.
inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;

/// Clears what is infinite or not a number: one overflow must not stay in the feedback of all later
/// steps.
void drop_overflow(std::span<float> residual);

}  // namespace rackrail::plan
