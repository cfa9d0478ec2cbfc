// bfloat16: the upper half of an FP32, rounded to nearest even. It has FP32's range, so it never
// overflows where FP16 does, and 8 significant bits to FP16's 11. NaN keeps the upper bits of its
// payload and becomes quiet.
#include "plan/codecs/registry.hpp"
#include "plan/codecs/rounding.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/bf16.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/rounding_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

struct Bfloat16 {
  template <class D>
  HWY_INLINE static hn::Vec<Codes<D>> codes_of(D /*d*/, hn::Vec<D> values) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, values);
    const auto is_nan = hn::VecFromMask(du, hn::RebindMask(du, hn::IsNaN(values)));
    // Half a unit less one, plus the bit that decides ties; a carry out of the mantissa correctly
    // increments the exponent, up to infinity.
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounding = hn::AndNot(is_nan, hn::Add(odd, hn::Set(du, 0x7fff)));
    const auto quiet = hn::And(is_nan, hn::Set(du, 0x400000));
    return upper_halves(D(), hn::Or(hn::Add(bits, rounding), quiet));
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> floats_of(D d, hn::Vec<Codes<D>> codes) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, codes)));
  }

  template <class D>
  HWY_INLINE static hn::Vec<Codes<D>> upper_halves(D /*d*/, hn::Vec<hn::RebindToUnsigned<D>> bits) {
    const hn::RebindToSigned<D> di;
    return hn::DemoteTo(Codes<D>(), hn::BitCast(di, hn::ShiftRight<16>(bits)));
  }
};

std::unique_ptr<CodecArithmetic> make_bf16(const Codec& codec) {
  return std::make_unique<RoundingArithmetic<Bfloat16>>(codec);
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {

HWY_EXPORT(make_bf16);

const CodecFormat& bf16_format() {
  static const RoundingFormat kFormat(
      {.name = "bf16", .is_elementwise = true, .survives_many_hops = true}, 8,
      [](const Codec& codec) { return HWY_DYNAMIC_DISPATCH(make_bf16)(codec); });
  return kFormat;
}

}  // namespace rackrail::plan
#endif
