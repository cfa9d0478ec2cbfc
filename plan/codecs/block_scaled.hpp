// Codecs of 8-bit codes with one FP32 scale per block of elements.
//
// Layout of n elements: ⌈n/block⌉ scales (FP32), then n codes (bytes). Blocks are counted from the
// first element of the encoded range. A block with a NaN or an infinity has the scale NaN and
// decodes to NaN.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "plan/codecs/cpu_arithmetic.hpp"

namespace rackrail::plan {

inline constexpr std::uint32_t kLargestBlock = 1U << 20U;

/// n + 4·⌈n/block⌉.
Bytes block_scaled_size(std::uint32_t block, std::int64_t elements);

/// `Code` has
///   float scale(float largest): positive, or 0 for a block that is too small for a scale;
///   encode(set, values, scale, key stream, index of the first element, codes, count);
///   loops DecodeBlock and DecodeAddBlock, run(codes, scale, output, count).
template <typename Code>
class BlockScaledArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    std::byte* scales = output.data();
    std::byte* codes = output.data() + scale_bytes(input.size());
    for (std::size_t begin = 0; begin < input.size(); begin += block()) {
      const std::size_t size = std::min(block(), input.size() - begin);
      const std::span<float> error = residual.empty() ? residual : residual.subspan(begin, size);
      fetch(input, begin + kAhead, std::min(size, kAhead));
      fetch(residual, begin + kAhead, std::min(size, kAhead));
      const std::span<const float> values = compensated(input.subspan(begin, size), error);
      const float scale = scale_of(largest_magnitude(values));
      store(scales, scale);
      scales += sizeof scale;
      if (scale > 0) {
        Code::encode(set(), values.data(), scale, key.stream,
                     static_cast<std::uint64_t>(key.first_element) + begin, codes + begin, size);
        // x − q·s = x + q·(−s)
        vectorised<typename Code::DecodeAddBlock>(set(), codes + begin, -scale, error.data(),
                                                  error.size());
      } else {
        std::memset(codes + begin, 0, size);
        if (scale != scale) {
          // One overflow must not stay in the feedback of all later steps.
          std::fill(error.begin(), error.end(), 0.0F);
        }
      }
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    each_block<typename Code::DecodeBlock>(encoded, output);
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    each_block<typename Code::DecodeAddBlock>(encoded, output);
  }

 private:
  // A block is gone through several times, and meanwhile nothing would come from memory: the
  // processor looks ahead in one run through the data, not from block to block.
  static constexpr std::size_t kAhead = 1024;  // elements
  static void fetch(std::span<const float> values, std::size_t begin, std::size_t size) {
    constexpr std::size_t kLine = 64 / sizeof(float);
    for (std::size_t i = begin; i < std::min(begin + size, values.size()); i += kLine) {
      __builtin_prefetch(&values[i]);
    }
  }

  std::size_t block() const { return descriptor().block; }
  std::size_t scale_bytes(std::size_t elements) const {
    return (elements + block() - 1) / block() * sizeof(float);
  }
  static float scale_of(std::uint32_t largest_magnitude) {
    return largest_magnitude >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN()
                                              : Code::scale(bits_as<float>(largest_magnitude));
  }

  template <typename Loop>
  void each_block(std::span<const std::byte> encoded, std::span<float> output) const {
    check_encoded_size(encoded, output.size());
    const std::byte* scales = encoded.data();
    const std::byte* codes = encoded.data() + scale_bytes(output.size());
    for (std::size_t begin = 0; begin < output.size(); begin += block()) {
      const auto scale = load<float>(scales);
      scales += sizeof scale;
      const std::size_t size = std::min(block(), output.size() - begin);
      vectorised<Loop>(set(), codes + begin, scale, output.data() + begin, size);
    }
  }
};

}  // namespace rackrail::plan
