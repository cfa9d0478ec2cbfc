// IEEE binary16, rounded to nearest even. Encoding what was decoded gives the same bytes; NaN keeps
// the upper bits of its payload and becomes quiet.
#include "plan/codecs/registry.hpp"
#include "plan/codecs/rounding.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/fp16.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/rounding_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

// Where the processor converts, Highway has it do so: with these very bits. Where it does not,
// Highway truncates, and takes infinity for a number.
#if HWY_ARCH_X86 ? HWY_TARGET <= HWY_AVX2 : HWY_ARCH_ARM_A64

struct Half {
  template <class D>
  HWY_INLINE static hn::Vec<Codes<D>> codes_of(D /*d*/, hn::Vec<D> values) {
    return hn::BitCast(Codes<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), values));
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> floats_of(D d, hn::Vec<Codes<D>> codes) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), codes));
  }
};

#else

struct Half {
  template <class D>
  HWY_INLINE static hn::Vec<Codes<D>> codes_of(D d, hn::Vec<D> values) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du, values)), hn::Set(du, 0x8000));
    const auto size = hn::Abs(values);
    const auto magnitude = hn::BitCast(du, size);
    // Subnormal or zero: adding 0.5 makes the float adder round to multiples of 2⁻²⁴.
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(size, hn::Set(d, 0.5F))), hn::Set(du, 0x3f000000));
    // Normal: a bias of half a unit less one, plus the bit that decides ties, then truncation; a
    // carry out of the mantissa correctly increments the exponent.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, 0x38000000 - 0xfff)), odd));
    const auto nan =
        hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff)), hn::Set(du, 0x7e00));
    auto half = hn::IfThenElse(is_above(d, magnitude, 0x38800000 - 1), normal, subnormal);
    // 65520 and above: the tie goes to the even neighbour, infinity.
    half = hn::IfThenElse(is_above(d, magnitude, 0x477ff000 - 1), hn::Set(du, 0x7c00), half);
    half = hn::IfThenElse(is_above(d, magnitude, 0x7f800000), nan, half);
    return hn::DemoteTo(Codes<D>(), hn::BitCast(di, hn::Or(sign, half)));
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> floats_of(D d, hn::Vec<Codes<D>> codes) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto wide = hn::PromoteTo(du, codes);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000)));
    const auto magnitude = hn::And(wide, hn::Set(du, 0x7fff));
    const auto subnormal = hn::BitCast(
        du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1.0p-24F)));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x38000000));
    const auto nan = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7fc00000));
    auto bits = hn::IfThenElse(is_above(d, magnitude, 0x3ff), normal, subnormal);
    bits = hn::IfThenElse(is_above(d, magnitude, 0x7bff), hn::Set(du, 0x7f800000), bits);
    bits = hn::IfThenElse(is_above(d, magnitude, 0x7c00), nan, bits);
    return hn::BitCast(d, hn::Or(sign, bits));
  }

  /// Of numbers below 2³¹, which are compared in more processors where they have a sign.
  template <class D>
  HWY_INLINE static auto is_above(D /*d*/, hn::Vec<hn::RebindToUnsigned<D>> bits,
                                  std::int32_t bound) {
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, bits), hn::Set(di, bound)));
  }
};

#endif

std::unique_ptr<CodecArithmetic> make_fp16(const Codec& codec) {
  return std::make_unique<RoundingArithmetic<Half>>(codec);
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {

HWY_EXPORT(make_fp16);

const CodecFormat& fp16_format() {
  static const RoundingFormat kFormat(
      {.name = "fp16", .is_elementwise = true, .survives_many_hops = true, .is_default = true}, 11,
      [](const Codec& codec) { return HWY_DYNAMIC_DISPATCH(make_fp16)(codec); });
  return kFormat;
}

}  // namespace rackrail::plan
#endif
