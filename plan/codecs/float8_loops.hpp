// The codes of blocks of 8-bit floating point (float8_block.hpp).

// Once for each instruction set.
#if defined(RACKRAIL_PLAN_CODECS_FLOAT8_LOOPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef RACKRAIL_PLAN_CODECS_FLOAT8_LOOPS_HPP
#undef RACKRAIL_PLAN_CODECS_FLOAT8_LOOPS_HPP
#else
#define RACKRAIL_PLAN_CODECS_FLOAT8_LOOPS_HPP
#endif

#include "plan/codecs/block_scaled_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {

/// `Numbers` is what Float8Format has.
template <class Numbers>
struct Float8 {
  static constexpr int kSmallestOctave = 1 - Numbers::kBias;
  static constexpr std::uint32_t kDroppedBits = 4;  // of 24, from the scale
  static constexpr int kShift = 23 - Numbers::kMantissaBits;
  static constexpr std::uint32_t kBiasDifference = (127U - Numbers::kBias) << 23U;
  static constexpr std::uint32_t kSmallestNormalBits = (127U + kSmallestOctave) << 23U;
  /// Its last place is the unit of subnormal numbers.
  static constexpr std::uint32_t kSubnormalMagicBits =
      (127U + kSmallestOctave - Numbers::kMantissaBits + 23U) << 23U;

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

  /// |values| are at most 1.005 · kLargest times as large as the scale.
  template <class Put>
  HWY_INLINE static void encode(const Block& block, Put put) {
    const float* from = block.values;
    const float scale = block.scale;
    each_vector(Floats(), block.size, [=](auto d, std::size_t i) HWY_ATTR {
      const auto values = hn::LoadU(d, from + i);
      put(d, i, values, codes_of(d, hn::Div(values, hn::Set(d, scale))));
    });
  }

  /// The sign is that of the integer, so that it is narrowed to the right bits.
  template <class D>
  HWY_INLINE static auto codes_of(D d, hn::Vec<D> numbers) {
    const hn::RebindToSigned<D> di;
    const auto size = hn::Abs(numbers);
    const auto smallest_normal = hn::BitCast(d, hn::Set(di, kSmallestNormalBits));
    const auto is_subnormal = hn::Lt(size, smallest_normal);
    // As in fp16.cpp, rounding by adding: subnormal numbers in the float adder, others in integers.
    const auto magic = hn::BitCast(d, hn::Set(di, kSubnormalMagicBits));
    const auto sum = hn::BitCast(di, hn::Add(size, hn::IfThenElseZero(is_subnormal, magic)));
    const auto odd = hn::And(hn::ShiftRight<kShift>(sum), hn::Set(di, 1));
    constexpr std::int32_t kHalf = (1 << (kShift - 1)) - 1;
    const auto rounded = hn::Add(hn::Add(sum, hn::Set(di, kHalf - kBiasDifference)), odd);
    const auto codes = hn::IfThenElse(hn::RebindMask(di, is_subnormal),
                                      hn::Sub(sum, hn::Set(di, kSubnormalMagicBits)),
                                      hn::ShiftRight<kShift>(rounded));
    const auto sign = hn::And(hn::BitCast(di, numbers), hn::Set(di, kSignBit));
    return hn::Or(codes, hn::ShiftRight<24>(sign));
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> floats_of(D d, hn::Vec<ByteCodes<D>> codes) {
    const hn::RebindToSigned<D> di;
    const auto wide = hn::PromoteTo(di, codes);
    const auto magnitude = hn::And(wide, hn::Set(di, 0x7f));
    auto bits = hn::BitCast(di, finite_sizes_of(d, magnitude));
    const auto is_special = hn::Gt(magnitude, hn::Set(di, Numbers::kLargestCode));
    bits = hn::IfThenElse(is_special, hn::Set(di, 0x7fc00000), bits);
    if constexpr (Numbers::kHasInfinity) {
      const auto is_infinity = hn::Eq(magnitude, hn::Set(di, Numbers::kLargestCode + 1));
      bits = hn::IfThenElse(is_infinity, hn::Set(di, kInfinityBits), bits);
    }
    return hn::CopySignToAbs(hn::BitCast(d, bits), hn::BitCast(d, wide));
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> finite_floats_of(D d, hn::Vec<ByteCodes<D>> codes) {
    const hn::RebindToSigned<D> di;
    const auto wide = hn::PromoteTo(di, codes);
    const auto size = finite_sizes_of(d, hn::And(wide, hn::Set(di, 0x7f)));
    return hn::CopySignToAbs(size, hn::BitCast(d, wide));
  }

 private:
  static constexpr std::int32_t kSignBit = std::numeric_limits<std::int32_t>::min();

  template <class D>
  HWY_INLINE static hn::Vec<D> finite_sizes_of(D d, hn::Vec<hn::RebindToSigned<D>> magnitudes) {
    const hn::RebindToSigned<D> di;
    const auto is_subnormal = hn::Lt(magnitudes, hn::Set(di, 1 << Numbers::kMantissaBits));
    // A subnormal number is read as a normal one with the smallest exponent, less its leading one.
    const auto one = hn::IfThenElseZero(is_subnormal, hn::Set(di, 1 << 23));
    const auto with_one =
        hn::Add(hn::Add(hn::ShiftLeft<kShift>(magnitudes), hn::Set(di, kBiasDifference)), one);
    const auto excess = hn::IfThenElseZero(is_subnormal, hn::Set(di, kSmallestNormalBits));
    return hn::Sub(hn::BitCast(d, with_one), hn::BitCast(d, excess));
  }
};

}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
