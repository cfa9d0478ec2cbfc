// Codecs of 8-bit floating point with one FP32 scale per block; laid out as block_scaled.hpp says.
//
// A block with largest magnitude m has the scale s = m/L, L being the format's largest number,
// rounded towards zero to 20 significant bits, and x becomes the code nearest to x/s, ties to even.
// Nearest and not stochastic: it has half the variance, it is what the conversion instructions of
// GPUs do, and the error is fed back anyway, which makes up for the bias.
//
// Encoding what was decoded gives the same bytes: a code has at most 4 significant bits, so code ·
// s fits into FP32's 24 and is exact. m/s lies at most 2⁻¹⁹ (relative) above L and is rounded to
// it, so what is decoded has the largest magnitude L·s, hence the same scale and the same codes.
// Blocks so small that products would lose bits have the scale 0; the limit is L times a power of
// two, so that what is decoded does not fall below it.
//
// The formats are those of the OCP 8-bit floating point specification (OFP8, revision 1.0, 2023).
#pragma once

#include <algorithm>
#include <cmath>

#include "plan/codecs/block_scaled.hpp"
#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"

namespace rackrail::plan {

/// `Numbers` is a format: kMantissaBits, kBias, the largest number kLargest in [2^kLargestOctave,
/// 2^(kLargestOctave + 1)), kSmallestBlock (no product of a code and a scale of blocks from there
/// on loses bits), and a loop `std::uint32_t special(std::uint32_t magnitude, std::uint32_t bits)`:
/// the bits of what codes that are no finite number stand for, else `bits`.
template <typename Numbers>
struct Float8Block {
  static constexpr int kSmallestOctave = 1 - Numbers::kBias;
  static constexpr std::uint32_t kDroppedBits = 4;  // of 24, from the scale
  static constexpr std::uint32_t kShift = 23 - Numbers::kMantissaBits;
  static constexpr std::uint32_t kBiasDifference = (127U - Numbers::kBias) << 23U;
  static constexpr std::uint32_t kSmallestNormalBits = (127U + kSmallestOctave) << 23U;
  /// Its last place is the unit of subnormal numbers.
  static constexpr std::uint32_t kSubnormalMagicBits =
      (127U + kSmallestOctave - Numbers::kMantissaBits + 23U) << 23U;

  // Both loops choose between integers only: of two floating-point expressions the compiler would
  // compute one behind a branch, and no vectors.

  RACKRAIL_LOOP float float_of(std::byte code) {
    const auto bits = static_cast<std::uint32_t>(code);
    const std::uint32_t magnitude = bits & 0x7fU;
    const bool is_subnormal = magnitude < 1U << Numbers::kMantissaBits;
    // A subnormal number is read as a normal one with the smallest exponent, less its leading one.
    const std::uint32_t with_one =
        (magnitude << kShift) + kBiasDifference + (is_subnormal ? 1U << 23U : 0U);
    const auto excess = bits_as<float>(is_subnormal ? kSmallestNormalBits : 0U);
    const auto value = bits_as<std::uint32_t>(bits_as<float>(with_one) - excess);
    return bits_as<float>(Numbers::special(magnitude, value) | (bits & 0x80U) << 24U);
  }

  /// |input| is at most 1.005 · kLargest times as large as the scale.
  struct Encode {
    RACKRAIL_LOOP void run(const float* input, float scale, std::byte* codes, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto bits = bits_as<std::uint32_t>(input[i] / scale);
        const std::uint32_t magnitude = bits & 0x7fffffffU;
        const bool is_subnormal = magnitude < kSmallestNormalBits;
        // As in fp16.cpp, rounding by adding: subnormal numbers in the float adder, others in
        // integers.
        const auto magic = bits_as<float>(is_subnormal ? kSubnormalMagicBits : 0U);
        const auto sum = bits_as<std::uint32_t>(bits_as<float>(magnitude) + magic);
        const std::uint32_t half = (1U << (kShift - 1)) - 1;
        const std::uint32_t normal =
            (sum - kBiasDifference + half + (sum >> kShift & 1U)) >> kShift;
        const std::uint32_t code = is_subnormal ? sum - kSubnormalMagicBits : normal;
        codes[i] = static_cast<std::byte>(code | (bits >> 24U & 0x80U));
      }
    }
  };

  static float scale(float largest) {
    if (largest < Numbers::kSmallestBlock) {
      return 0;
    }
    const std::uint32_t bits = (bits_as<std::uint32_t>(largest / Numbers::kLargest) >> kDroppedBits)
                               << kDroppedBits;
    const auto scale = bits_as<float>(bits);
    // The division may have rounded up to a number of 20 bits.
    return scale * Numbers::kLargest > largest ? bits_as<float>(bits - (1U << kDroppedBits))
                                               : scale;
  }

  static void encode(InstructionSet set, const float* values, float scale, std::uint64_t /*stream*/,
                     std::uint64_t /*first*/, std::byte* codes, std::size_t count) {
    vectorised<Encode>(set, values, scale, codes, count);
  }

  struct DecodeBlock {
    RACKRAIL_LOOP void run(const std::byte* codes, float scale, float* output, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        output[i] = float_of(codes[i]) * scale;
      }
    }
  };
  struct DecodeAddBlock {
    RACKRAIL_LOOP void run(const std::byte* codes, float scale, float* output, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        output[i] += float_of(codes[i]) * scale;
      }
    }
  };
};

/// The format of such a codec.
template <typename Numbers>
class Float8Format final : public CodecFormat {
 public:
  using CodecFormat::CodecFormat;

  Bytes encoded_size(const Codec& codec, std::int64_t elements) const override {
    return block_scaled_size(codec.block, elements);
  }
  /// The mean of squared_error_below over the distribution of the block's largest magnitude, which
  /// is itself exact.
  double relative_error(const Codec& codec) const override {
    constexpr double kEnd = 9;  // a block of 2²⁰ exceeds it with a probability of 3e-13
    constexpr int kIntervals = 180;
    double sum = 0;
    double reached = 0;
    for (int i = 1; i <= kIntervals; ++i) {
      const double next = normal_maximum_below(codec.block, kEnd * i / kIntervals);
      if (next > reached) {
        sum += (next - reached) * squared_error_below(kEnd * (i - 0.5) / kIntervals);
      }
      reached = next;
    }
    return std::sqrt(sum * (1 - 1.0 / codec.block));
  }
  CodecTraffic traffic(const Codec& /*codec*/) const override {
    return {.encode = kFeedbackTraffic + 1, .decode_add = 1 + 4 + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec,
                                              InstructionSet set) const override {
    return std::make_unique<BlockScaledArithmetic<Float8Block<Numbers>>>(codec, set);
  }

 private:
  /// E[error²] of a standard normal number that is known to be below `largest`, the largest of its
  /// block: a unit u in the last place costs u²/12.
  static double squared_error_below(double largest) {
    constexpr int kSmallestOctave = Float8Block<Numbers>::kSmallestOctave;
    const double scale = largest / Numbers::kLargest;
    const auto below = [&](double x) { return 1 - 2 * normal_tail(std::min(x * scale, largest)); };
    const auto squared_unit = [&](int octave) {
      const double unit = std::ldexp(scale, octave - Numbers::kMantissaBits);
      return unit * unit / 12;
    };
    double sum = below(std::ldexp(1.0, kSmallestOctave)) * squared_unit(kSmallestOctave);
    for (int octave = kSmallestOctave; octave <= Numbers::kLargestOctave; ++octave) {
      const double begin = std::ldexp(1.0, octave);
      sum += (below(2 * begin) - below(begin)) * squared_unit(octave);
    }
    return sum / below(Numbers::kLargest);
  }
};

}  // namespace rackrail::plan
