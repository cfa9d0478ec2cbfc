// Blocks of 8-bit integers with one FP32 scale each, rounded stochastically; laid out as
// block_scaled.hpp says.
//
// A block with largest magnitude m has the scale s = m/127, rounded towards zero to 17 significant
// bits, and 0 where m < 127·2⁻¹⁰⁷. With r = RN(2¹⁵/s), x becomes ⌊(t + u)/2¹⁵⌋ where t is x·r
// rounded to an integer and u is random in [0, 2¹⁵): so ⌊x/s⌋ or ⌈x/s⌉ with the probabilities that
// make the expectation x, to within 2⁻¹⁶ of a step. There is no division of elements in it, and t
// is found by adding 1.5·2²³, whose bits are those of 0 then.
//
// Encoding what was decoded gives the same bytes, whatever the random numbers (idempotence): a code
// q has at most 7 significant bits, so q·s fits into FP32's 24 and is exact. s·127 ≤ m, and x·r has
// a relative error of 2⁻²³ (and 2⁻⁴⁸) at most, which is less than half a unit of t: so the largest
// element has |t| ≥ 127·2¹⁵ and gets the code ±127 for certain; decoded, it is m' = 127·s,
// fl(m'/127) = s exactly, and s has its 17 bits already: the same scale. For the same reason q·s
// has t = q·2¹⁵ exactly, and no u carries that to the next code.
//
// The price is that m may lie up to 2⁻¹⁶ (relative) beyond the last code: 0.002 of a step.
#include <cmath>

#include "base/random.hpp"
#include "plan/codecs/block_scaled.hpp"
#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"
#include "plan/codecs/registry.hpp"

namespace rackrail::plan {
namespace {

constexpr std::uint32_t kDroppedBits = 7;  // of 24

constexpr float kSmallestBlock = 127 * 0x1.0p-107F;  // so that 2¹⁵/s is finite
constexpr float kUnits = 0x1.0p15F;                  // per code
constexpr float kZero = 0x1.8p23F;                   // last place 1
constexpr std::int32_t kZeroBits = 0x4b400000;

/// Codes of a block whose first element has the index `first`, in [−127, 127]. |input| is at most
/// 128 times as large as the scale.
///
/// u of element i of the block is 15 bits of random_sequence(stream, first + 4·⌊i/4⌋), from bit
/// 16·(i mod 4) on: one number for four elements, since random numbers would else be most of the
/// work on a GPU.
struct EncodeInt8 {
  RACKRAIL_LOOP void run(const float* input, float scale, std::uint64_t stream, std::uint64_t first,
                         std::byte* codes, std::size_t count) {
    // In two passes over a piece that stays in the first-level cache: 64-bit arithmetic apart from
    // 32-bit arithmetic, so that each is vectorised at its own width.
    constexpr std::size_t kPiece = 256;
    std::uint64_t numbers[kPiece / 4];
    std::uint16_t units[kPiece];
    const float factor = kUnits / scale;
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
      const std::size_t size = count - begin < kPiece ? count - begin : kPiece;
      for (std::size_t group = 0; group < (size + 3) / 4; ++group) {
        numbers[group] = random_sequence(stream, first + begin + 4 * group);
      }
      __builtin_memcpy(units, numbers, (size + 3) / 4 * sizeof numbers[0]);
      for (std::size_t i = 0; i < size; ++i) {
        const auto exact = bits_as<std::int32_t>(input[begin + i] * factor + kZero) - kZeroBits;
        std::int32_t code = (exact + (units[i] & 0x7fff)) >> 15;
        code = code > 127 ? 127 : code;
        code = code < -127 ? -127 : code;
        codes[begin + i] = static_cast<std::byte>(code);
      }
    }
  }
};

struct Int8 {
  static float scale(float largest) {
    if (largest < kSmallestBlock) {
      return 0;
    }
    const std::uint32_t bits = (bits_as<std::uint32_t>(largest / 127) >> kDroppedBits)
                               << kDroppedBits;
    const auto scale = bits_as<float>(bits);
    // The division may have rounded up to a number of 17 bits.
    return scale * 127 > largest ? bits_as<float>(bits - (1U << kDroppedBits)) : scale;
  }

  static void encode(InstructionSet set, const float* values, float scale, std::uint64_t stream,
                     std::uint64_t first, std::byte* codes, std::size_t count) {
    vectorised<EncodeInt8>(set, values, scale, stream, first, codes, count);
  }

  struct DecodeBlock {
    RACKRAIL_LOOP void run(const std::byte* codes, float scale, float* output, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        output[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
      }
    }
  };
  struct DecodeAddBlock {
    RACKRAIL_LOOP void run(const std::byte* codes, float scale, float* output, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        output[i] += static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
      }
    }
  };
};

/// E[max |z|²] of `count` independent standard normal numbers: ∫ 2x·(1 − P(|z| < x)^count) dx by
/// Simpson's rule. The integrand is below 1e-20 past x = 12 for every block size that is allowed.
double expected_squared_maximum(std::uint32_t count) {
  constexpr int kIntervals = 480;
  constexpr double kEnd = 12;
  constexpr double kStep = kEnd / kIntervals;
  const auto integrand = [count](double x) {
    // 1 − (1 − tail)^count without loss of digits where the tail is small.
    return -2 * x * std::expm1(count * std::log1p(-2 * normal_tail(x)));
  };
  double sum = integrand(kEnd);  // The integrand is 0 at x = 0, where the logarithm has no value.
  for (int i = 1; i < kIntervals; ++i) {
    sum += (i % 2 == 1 ? 4 : 2) * integrand(i * kStep);
  }
  return sum * kStep / 3;
}

class Int8Format final : public CodecFormat {
 public:
  using CodecFormat::CodecFormat;

  Bytes encoded_size(const Codec& codec, std::int64_t elements) const override {
    return block_scaled_size(codec.block, elements);
  }
  /// A step of max/127 with stochastic rounding: (step²/6)·(1 − 1/block) with the exact E[max²].
  double relative_error(const Codec& codec) const override {
    // Stochastic rounding of a fraction f has variance f(1 − f), 1/6 on average; the largest
    // element of a block lands on a code exactly.
    const double others = 1 - 1.0 / codec.block;
    return std::sqrt(expected_squared_maximum(codec.block) * others / 6) / 127;
  }
  /// The second pass over a block finds it in the cache.
  CodecTraffic traffic(const Codec& /*codec*/) const override {
    return {.encode = kFeedbackTraffic + 1, .decode_add = 1 + 4 + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec,
                                              InstructionSet set) const override {
    return std::make_unique<BlockScaledArithmetic<Int8>>(codec, set);
  }
};

}  // namespace

const CodecFormat& int8_block_format() {
  static const Int8Format kFormat(
      {.name = "int8",
       .parameters = {{.name = "block", .field = &Codec::block, .above = 0, .most = kLargestBlock}},
       .has_error_feedback = true,
       .is_default = true});
  return kFormat;
}

}  // namespace rackrail::plan
