// FP8 E4M3 with one FP32 scale per block; laid out as block_scaled.hpp says.
//
// E4M3 is that of the OCP 8-bit floating point specification (OFP8, revision 1.0, 2023): sign, four
// bits of exponent with bias 7, three bits of mantissa; the largest number is 448 = S.1111.110, the
// smallest normal one 2⁻⁶, subnormal ones are multiples of 2⁻⁹, S.1111.111 is NaN, and there is no
// infinity.
//
// A block with largest magnitude m has the scale s = m/448, rounded towards zero to 20 significant
// bits, and x becomes the code nearest to x/s, ties to even. Nearest and not stochastic: it has
// half the variance, it is what the conversion instructions of GPUs do, and the error is fed back
// anyway, which makes up for the bias.
//
// Encoding what was decoded gives the same bytes: a code has at most 4 significant bits, so code ·
// s fits into FP32's 24 and is exact. m/s lies at most 2⁻¹⁹ (relative) above 448 and is rounded to
// it, so what is decoded has the largest magnitude 448·s, hence the same scale and the same codes.
// Blocks whose products would be subnormal (m < 2⁻¹¹²) have the scale 0.
//
// Against 8-bit integers of the same size: a relative error of 0.027 instead of 0.0097 on normally
// distributed gradients, but an error in proportion to each element down to 2⁻¹⁵ of the largest,
// where integers round all below m/254 to zero or one step. It is for heavy tails.
#include <cmath>

#include "plan/codecs/block_scaled.hpp"
#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"
#include "plan/codecs/registry.hpp"

namespace rackrail::plan {
namespace {

constexpr float kLargest = 448;
constexpr int kLargestOctave = 8;  // 256 … 448
constexpr int kSmallestOctave = -6;
constexpr int kMantissaBits = 3;
constexpr std::uint32_t kDroppedBits = 4;  // of 24, from the scale
constexpr std::uint32_t kShift = 23 - kMantissaBits;
constexpr std::uint32_t kBiasDifference = (127U - 7U) << 23U;
constexpr float kSmallestNormal = 0x1.0p-6F;
constexpr float kSubnormalUnit = 0x1.0p-9F;
constexpr std::uint32_t kSmallestNormalBits = 0x3c800000U;
constexpr std::uint32_t kSubnormalMagicBits = 0x46800000U;  // 2¹⁴: last place kSubnormalUnit
constexpr float kSmallestBlock = 0x1.0p-112F;

// Both loops choose between integers only: of two floating-point expressions the compiler would
// compute one behind a branch, and no vectors.

RACKRAIL_LOOP float float_of(std::byte code) {
  const auto bits = static_cast<std::uint32_t>(code);
  const std::uint32_t magnitude = bits & 0x7fU;
  const bool is_subnormal = magnitude < 8U;
  // A subnormal number is read as a normal one with the smallest exponent, less its leading one.
  const std::uint32_t with_one =
      (magnitude << kShift) + kBiasDifference + (is_subnormal ? 1U << 23U : 0U);
  const auto excess = bits_as<float>(is_subnormal ? kSmallestNormalBits : 0U);
  const auto value = bits_as<std::uint32_t>(bits_as<float>(with_one) - excess);
  return bits_as<float>((magnitude == 0x7fU ? 0x7fc00000U : value) | (bits & 0x80U) << 24U);
}

/// |input| is at most 450 times as large as the scale.
struct EncodeE4m3 {
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
      const std::uint32_t normal = (sum - kBiasDifference + half + (sum >> kShift & 1U)) >> kShift;
      const std::uint32_t code = is_subnormal ? sum - kSubnormalMagicBits : normal;
      codes[i] = static_cast<std::byte>(code | (bits >> 24U & 0x80U));
    }
  }
};

struct E4m3 {
  static float scale(float largest) {
    if (largest < kSmallestBlock) {
      return 0;
    }
    const std::uint32_t bits = (bits_as<std::uint32_t>(largest / kLargest) >> kDroppedBits)
                               << kDroppedBits;
    const auto scale = bits_as<float>(bits);
    // The division may have rounded up to a number of 20 bits.
    return scale * kLargest > largest ? bits_as<float>(bits - (1U << kDroppedBits)) : scale;
  }

  static void encode(InstructionSet set, const float* values, float scale, std::uint64_t /*stream*/,
                     std::uint64_t /*first*/, std::byte* codes, std::size_t count) {
    vectorised<EncodeE4m3>(set, values, scale, codes, count);
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

/// E[error²] of a standard normal number that is known to be below `largest`, the largest of its
/// block: a unit u in the last place costs u²/12.
double squared_error_below(double largest) {
  const double scale = largest / kLargest;
  const auto below = [&](double x) { return 1 - 2 * normal_tail(std::min(x * scale, largest)); };
  const double all = below(kLargest);
  double sum = 0;
  for (int octave = kSmallestOctave; octave <= kLargestOctave; ++octave) {
    const double begin = std::ldexp(1.0, octave);
    const double unit = std::ldexp(scale, octave - kMantissaBits);
    sum += (below(2 * begin) - below(begin)) * unit * unit / 12;
  }
  const double unit = kSubnormalUnit * scale;
  return (sum + below(kSmallestNormal) * unit * unit / 12) / all;
}

class Fp8Format final : public CodecFormat {
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
    return std::make_unique<BlockScaledArithmetic<E4m3>>(codec, set);
  }
};

}  // namespace

const CodecFormat& fp8_block_format() {
  static const Fp8Format kFormat(
      {.name = "fp8",
       .parameters = {{.name = "block", .field = &Codec::block, .above = 0, .most = kLargestBlock}},
       .has_error_feedback = true});
  return kFormat;
}

}  // namespace rackrail::plan
