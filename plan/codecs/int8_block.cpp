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

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/int8_block.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/block_scaled_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

constexpr std::uint32_t kDroppedBits = 7;  // of 24

constexpr float kSmallestBlock = 127 * 0x1.0p-107F;  // so that 2¹⁵/s is finite
constexpr float kUnits = 0x1.0p15F;                  // per code
constexpr float kZero = 0x1.8p23F;                   // last place 1
constexpr std::int32_t kZeroBits = 0x4b400000;

#if HWY_TARGET != HWY_SCALAR
/// mix64 of base/random.hpp.
template <class V>
HWY_INLINE V mixed(V x) {
  const hn::DFromV<V> d;
  x = hn::Add(x, hn::Set(d, kMixIncrement));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<30>(x)), hn::Set(d, kMixFactor1));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<27>(x)), hn::Set(d, kMixFactor2));
  return hn::Xor(x, hn::ShiftRight<31>(x));
}
#endif

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

  /// Codes are in [−127, 128], and then saturated. |values| are at most 128 times as large as the
  /// scale.
  ///
  /// u of element i of the block is 15 bits of random_sequence(stream, first + 4·⌊i/4⌋), from bit
  /// 16·(i mod 4) on: one number for four elements, since random numbers would else be most of the
  /// work on a GPU.
  template <class Put>
  HWY_INLINE static void encode(const Block& block, Put put) {
    const float* from = block.values;
    const float factor = kUnits / block.scale;
    const auto put_codes = [=](auto d, std::size_t i, auto units) HWY_ATTR {
      const auto values = hn::LoadU(d, from + i);
      put(d, i, values, codes_of(d, values, hn::Set(d, factor), units));
    };
    std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const Floats d;
    const hn::RebindToUnsigned<Floats> d32;
    const hn::RebindToSigned<Floats> di;
    const hn::Repartition<std::uint16_t, Floats> d16;
    const hn::Half<decltype(d16)> half;
    const hn::Repartition<std::uint64_t, Floats> d64;
    const std::size_t step = hn::Lanes(d16);
    auto next = hn::Add(hn::Mul(hn::Iota(d64, 0), hn::Set(d64, 4 * kMixIncrement)),
                        hn::Set(d64, block.stream + block.first * kMixIncrement));
    for (; i + step <= block.size; i += step) {
      const auto units = hn::And(hn::BitCast(d16, mixed(next)), hn::Set(d16, 0x7fff));
      next = hn::Add(next, hn::Set(d64, step * kMixIncrement));
      const auto low = hn::PromoteTo(d32, hn::LowerHalf(half, units));
      const auto high = hn::PromoteTo(d32, hn::UpperHalf(half, units));
      put_codes(d, i, hn::BitCast(di, low));
      put_codes(d, i + step / 2, hn::BitCast(di, high));
    }
#endif
    for (; i < block.size; ++i) {
      const std::uint64_t number = random_sequence(block.stream, block.first + i / 4 * 4);
      const auto unit = static_cast<std::int32_t>(number >> 16 * (i % 4) & 0x7fffU);
      put_codes(OneFloat(), i, hn::Set(hn::RebindToSigned<OneFloat>(), unit));
    }
  }

  template <class D>
  HWY_INLINE static auto codes_of(D /*d*/, hn::Vec<D> values, hn::Vec<D> factor,
                                  hn::Vec<hn::RebindToSigned<D>> units) {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto sum = hn::Add(hn::Mul(values, factor), hn::Set(d, kZero));
    const auto exact = hn::Sub(hn::BitCast(di, sum), hn::Set(di, kZeroBits));
    const auto codes = hn::ShiftRight<15>(hn::Add(exact, units));
    return hn::Max(codes, hn::Set(di, -127));
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> floats_of(D d, hn::Vec<ByteCodes<D>> codes) {
    return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), codes));
  }
  template <class D>
  HWY_INLINE static hn::Vec<D> finite_floats_of(D d, hn::Vec<ByteCodes<D>> codes) {
    return floats_of(d, codes);
  }
};

std::unique_ptr<CodecArithmetic> make_int8(const Codec& codec) {
  return std::make_unique<BlockScaledArithmetic<Int8>>(codec);
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {

HWY_EXPORT(make_int8);

namespace {

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
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    return HWY_DYNAMIC_DISPATCH(make_int8)(codec);
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
#endif
