// FP8 E4M3 with one FP32 scale per block; float8_block.hpp says how.
//
// E4M3 has a sign, four bits of exponent with bias 7 and three bits of mantissa; the largest number
// is 448 = S.1111.110, the smallest normal one 2⁻⁶, subnormal ones are multiples of 2⁻⁹, S.1111.111
// is NaN, and there is no infinity.
//
// Against 8-bit integers of the same size: a relative error of 0.027 instead of 0.0097 on normally
// distributed gradients, but an error in proportion to each element down to 2⁻¹⁵ of the largest,
// where integers round all below m/254 to zero or one step. It is for heavy tails.
#include "plan/codecs/float8_block.hpp"
#include "plan/codecs/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/fp8_block.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/float8_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

struct E4m3 {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr int kLargestOctave = 8;
  static constexpr std::int32_t kLargestCode = 0x7e;
  static constexpr bool kHasInfinity = false;
  static constexpr float kLargest = 448;
  static constexpr float kSmallestBlock = kLargest * 0x1.0p-121F;
};

std::unique_ptr<CodecArithmetic> make_fp8(const Codec& codec) {
  return std::make_unique<BlockScaledArithmetic<Float8<E4m3>>>(codec);
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {

HWY_EXPORT(make_fp8);

const CodecFormat& fp8_block_format() {
  static const Float8Format<HWY_NAMESPACE::E4m3> kFormat(
      {.name = "fp8",
       .parameters = {{.name = "block", .field = &Codec::block, .above = 0, .most = kLargestBlock}},
       .has_error_feedback = true},
      [](const Codec& codec) { return HWY_DYNAMIC_DISPATCH(make_fp8)(codec); });
  return kFormat;
}

}  // namespace rackrail::plan
#endif
