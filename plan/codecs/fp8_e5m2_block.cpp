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

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/fp8_e5m2_block.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/float8_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

struct E5m2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr int kLargestOctave = 15;
  static constexpr std::int32_t kLargestCode = 0x7b;
  static constexpr bool kHasInfinity = true;
  static constexpr float kLargest = 57344;
  static constexpr float kSmallestBlock = kLargest * 0x1.0p-114F;
};

std::unique_ptr<CodecArithmetic> make_fp8_e5m2(const Codec& codec) {
  return std::make_unique<BlockScaledArithmetic<Float8<E5m2>>>(codec);
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {

HWY_EXPORT(make_fp8_e5m2);

const CodecFormat& fp8_e5m2_block_format() {
  static const Float8Format<HWY_NAMESPACE::E5m2> kFormat(
      {.name = "fp8e5m2",
       .parameters = {{.name = "block", .field = &Codec::block, .above = 0, .most = kLargestBlock}},
       .has_error_feedback = true},
      [](const Codec& codec) { return HWY_DYNAMIC_DISPATCH(make_fp8_e5m2)(codec); });
  return kFormat;
}

}  // namespace rackrail::plan
#endif
