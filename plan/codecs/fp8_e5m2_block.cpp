// FP8 E5M2 with one FP32 scale per block; float8_block.hpp says how.
//
// E5M2 has a sign, five bits of exponent with bias 15 and two bits of mantissa; the largest number
// is 57344 = S.11110.11, the smallest normal one 2⁻¹⁴, subnormal ones are multiples of 2⁻¹⁶,
// S.11111.00 is infinity and what is above it NaN.
//
// Against E4M3: one bit of mantissa less, so twice the error (0.054 on normally
// distributed gradients), for errors in proportion to elements down to 2⁻³⁰ of the largest of the
// block instead of 2⁻¹⁵. It is the format in which others keep gradients in FP8.
#include "plan/codecs/float8_block.hpp"
#include "plan/codecs/registry.hpp"

namespace rackrail::plan {
namespace {

struct E5m2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr int kLargestOctave = 15;
  static constexpr float kLargest = 57344;
  static constexpr float kSmallestBlock = kLargest * 0x1.0p-114F;

  RACKRAIL_LOOP std::uint32_t special(std::uint32_t magnitude, std::uint32_t bits) {
    const std::uint32_t beyond = magnitude == 0x7cU ? 0x7f800000U : 0x7fc00000U;
    return magnitude >= 0x7cU ? beyond : bits;
  }
};

}  // namespace

const CodecFormat& fp8_e5m2_block_format() {
  static const Float8Format<E5m2> kFormat(
      {.name = "fp8e5m2",
       .parameters = {{.name = "block", .field = &Codec::block, .above = 0, .most = kLargestBlock}},
       .has_error_feedback = true});
  return kFormat;
}

}  // namespace rackrail::plan
