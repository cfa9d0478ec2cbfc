// bfloat16: the upper half of an FP32, rounded to nearest even. It has FP32's range, so it never
// overflows where FP16 does, and 8 significant bits to FP16's 11. NaN keeps the upper bits of its
// payload and becomes quiet.
#include "plan/codecs/registry.hpp"
#include "plan/codecs/rounding.hpp"

namespace rackrail::plan {
namespace {

struct Bfloat16 {
  using Code = std::uint16_t;

  RACKRAIL_LOOP Code code_of(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    // Half a unit less one, plus the bit that decides ties; a carry out of the mantissa correctly
    // increments the exponent, up to infinity. By masks, so that nothing is narrowed but the
    // result.
    const std::uint32_t is_nan = value != value ? 0xffffffffU : 0;
    const std::uint32_t rounding = (0x7fffU + ((bits >> 16U) & 1U)) & ~is_nan;
    const std::uint32_t quiet = 0x400000U & is_nan;
    return static_cast<Code>(((bits + rounding) | quiet) >> 16U);
  }

  RACKRAIL_LOOP float float_of(Code code) {
    return bits_as<float>(static_cast<std::uint32_t>(code) << 16U);
  }

  static void encode(InstructionSet set, const float* input, std::byte* output, std::size_t count) {
    vectorised_stream<EncodeEach<Bfloat16>>(set, input, output, count);
  }
  static void decode(InstructionSet set, const std::byte* input, float* output, std::size_t count) {
    vectorised_stream<DecodeEach<Bfloat16>>(set, input, output, count);
  }
  static void decode_add(InstructionSet set, const std::byte* input, float* output,
                         std::size_t count) {
    vectorised_stream<DecodeAddEach<Bfloat16>>(set, input, output, count);
  }
};

}  // namespace

const CodecFormat& bf16_format() {
  static const RoundingFormat<Bfloat16> kFormat(
      {.name = "bf16", .is_elementwise = true, .survives_many_hops = true}, 8);
  return kFormat;
}

}  // namespace rackrail::plan
