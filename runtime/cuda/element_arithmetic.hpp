// The arithmetic of the codecs on single elements, as kernels do it.
//
// The same code runs on the device and on the host. Tests compare it bit by bit with the codecs of
// plan/codecs/, which compute the same in another manner. Nothing here relies on fused
// multiply-adds that the compiler makes (kernels are compiled with -fmad=false). Where std::fma
// stands, it is meant.
//
// NaN. A device's arithmetic makes one NaN of all, a processor's keeps payloads. So results that
// are NaN by arithmetic agree only in being NaN; casts of values that were not added to anything
// keep payloads as the codecs of plan/codecs/ do.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/random.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#define RACKRAIL_BOTH __host__ __device__ __forceinline__
#else
#define RACKRAIL_BOTH inline
#endif

namespace rackrail::runtime::element {

inline constexpr std::uint32_t kMagnitudeMask = 0x7fffffffU;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;
inline constexpr std::uint32_t kNanBits = 0x7fc00000U;

RACKRAIL_BOTH std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
RACKRAIL_BOTH float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
RACKRAIL_BOTH std::uint32_t magnitude_of(float value) { return bits_of(value) & kMagnitudeMask; }
RACKRAIL_BOTH bool is_finite(float value) { return magnitude_of(value) < kInfinityBits; }

/// What error feedback keeps: one overflow must not stay in it for all later steps.
RACKRAIL_BOTH float kept_error(float error) { return is_finite(error) ? error : 0.0F; }

RACKRAIL_BOTH float reciprocal(float value) {
#if defined(__CUDA_ARCH__)
  return __frcp_rn(value);
#else
  return 1.0F / value;
#endif
}

RACKRAIL_BOTH float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// A magnitude rounded to `kFraction` bits after the leading one, ties to even, but to no smaller
/// unit than 2^(kSmallestExponent − kFraction): the number of its code in a format without sign
/// whose smallest normal number is 2^kSmallestExponent. Larger exponents follow without end; the
/// caller knows where its format ends.
///
/// Adding 2^(e + 23 − kFraction), e being the exponent, has the adder round to the unit wanted,
/// and the difference of the sum's bits to the addend's is the magnitude in that unit.
template <int kFraction, int kSmallestExponent>
RACKRAIL_BOTH std::uint32_t rounded_code(std::uint32_t magnitude) {
  constexpr std::uint32_t kSmallest = 127 + kSmallestExponent;
  const std::uint32_t exponent = magnitude >> 23U;
  const std::uint32_t bounded = exponent < kSmallest ? kSmallest : exponent;
  const std::uint32_t addend = (bounded + 23U - kFraction) << 23U;
  const std::uint32_t sum = bits_of(float_of(magnitude) + float_of(addend));
  return ((bounded - kSmallest) << kFraction) + (sum - addend);
}

#if defined(__CUDA_ARCH__)
/// The two halves of a word as floats, NaN as any NaN: one instruction for each.
__device__ __forceinline__ void floats_of_halves(std::uint32_t halves, float& low, float& high) {
  low = __half2float(__ushort_as_half(static_cast<std::uint16_t>(halves)));
  high = __half2float(__ushort_as_half(static_cast<std::uint16_t>(halves >> 16U)));
}
#endif

/// IEEE binary16, as fp16 of plan/codecs/.
struct Half {
  using Code = std::uint16_t;

  RACKRAIL_BOTH static Code code_of(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & kMagnitudeMask;
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t quiet = sign | 0x7e00U | ((bits >> 13U) & 0x3ffU);
#if defined(__CUDA_ARCH__)
    const std::uint32_t rounded = __half_as_ushort(__float2half_rn(value));
#else
    // 65520, the tie between the largest number and what would be the next one, is infinite.
    const std::uint32_t number =
        magnitude >= 0x477ff000U ? 0x7c00U : rounded_code<10, -14>(magnitude);
    const std::uint32_t rounded = sign | number;
#endif
    return static_cast<Code>(magnitude > kInfinityBits ? quiet : rounded);
  }

  RACKRAIL_BOTH static float float_of(Code code) {
    const std::uint32_t sign = (code & 0x8000U) << 16U;
    const std::uint32_t magnitude = code & 0x7fffU;
    // As an FP32 with the same fields the number is 2⁻¹¹² times itself, subnormal or not.
    const std::uint32_t number = bits_of(element::float_of(magnitude << 13U) * 0x1.0p112F);
    const std::uint32_t quiet = magnitude > 0x7c00U ? 0x400000U : 0U;
    const std::uint32_t beyond = kInfinityBits | quiet | ((magnitude & 0x3ffU) << 13U);
    return element::float_of(sign | (magnitude >= 0x7c00U ? beyond : number));
  }

  /// float_of() where something is added to it, so that the payload of a NaN does not matter.
  RACKRAIL_BOTH static float addend_of(Code code) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(code));
#else
    return float_of(code);
#endif
  }
};

/// The upper half of an FP32, as bf16 of plan/codecs/.
struct Bfloat16 {
  using Code = std::uint16_t;

  RACKRAIL_BOTH static Code code_of(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t quiet = (bits >> 16U) | 0x40U;
#if defined(__CUDA_ARCH__)
    const std::uint32_t rounded = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
#endif
    return static_cast<Code>((bits & kMagnitudeMask) > kInfinityBits ? quiet : rounded);
  }

  RACKRAIL_BOTH static float float_of(Code code) {
    return element::float_of(static_cast<std::uint32_t>(code) << 16U);
  }
  RACKRAIL_BOTH static float addend_of(Code code) { return float_of(code); }
};

/// Division by the scale of a block, correctly rounded, in four operations and without a branch.
///
/// With y = RN(1/s) and q₀ = RN(x·y), which is about 2 units in the last place or less from x/s,
/// the remainder r = x − q₀·s is exact: it is a multiple of the product of the units of q₀ and s,
/// and at most some 2²¹ of them, s having at most 20 significant bits. RN(q₀ + r·y) is RN(x/s),
/// because r·y misses r/s by no more than 2⁻²³ units of the quotient, while x/s is at least 2⁻²¹ of
/// them away from every tie: with s' < 2²⁰, s as an integer, that distance is a multiple of
/// 1/(2s'), and it is not 0, since x would be a product with a factor of 25 significant bits.
///
/// That is so for |x| ≥ 2⁻¹²⁵ and 2⁻⁹⁰ ≤ s ≤ 2⁹⁰. Smaller and larger scales are brought there by a
/// power of two, and x with them. The quotients of smaller x are below 2⁻³⁵ however they are
/// rounded; all codes here take that for zero.
class BlockDivisor {
 public:
  /// `scale` > 0 with at most 20 significant bits.
  RACKRAIL_BOTH explicit BlockDivisor(float scale)
      : factor_(scale < 0x1.0p-90F ? 0x1.0p64F : (scale > 0x1.0p90F ? 0x1.0p-64F : 1.0F)),
        scale_(scale * factor_),
        reciprocal_(reciprocal(scale_)) {}

  /// value / scale, or a number of its sign below 2⁻³⁵ (or zero) for one that is; |value| is at
  /// most 2¹⁶ times the scale.
  RACKRAIL_BOTH float quotient(float value) const {
    const float moved = value * factor_;
    const float near = moved * reciprocal_;
    const float rest = fused_multiply_add(-near, scale_, moved);
    return fused_multiply_add(rest, reciprocal_, near);
  }

 private:
  float factor_;
  float scale_;
  float reciprocal_;
};

/// `quotient`, rounded towards zero to 24 − kDroppedBits significant bits, but so that times
/// `largest_code` it does not exceed `largest`, of which it is the quotient.
template <int kDroppedBits>
RACKRAIL_BOTH float scale_below(float largest, float largest_code) {
  const std::uint32_t bits = (bits_of(largest / largest_code) >> kDroppedBits) << kDroppedBits;
  const float scale = float_of(bits);
  return scale * largest_code > largest ? float_of(bits - (1U << kDroppedBits)) : scale;
}

/// Four codes are the bytes of a word, the first one lowest. Each type of code below has
///   Factor: what is worked out once for a block;
///   code_of(value, factor, random, which): the code of element `which` of four, which share the
///     random number `random` where kIsRandom;
///   float_of(codes, which): the float that code `which` of four stands for, before the scale;
///   floats_of(codes, floats): all four.

/// 8-bit integers, rounded stochastically, as int8 of plan/codecs/, which says why.
struct Int8 {
  static constexpr bool kIsRandom = true;

  struct Factor {
    /// Rounded once: scales are far from where a reciprocal is no normal number.
    RACKRAIL_BOTH explicit Factor(float scale) : units_per_value(0x1.0p15F * reciprocal(scale)) {}
    float units_per_value;
  };

  RACKRAIL_BOTH static float scale_of(float largest) {
    return largest < 127 * 0x1.0p-107F ? 0.0F : scale_below<7>(largest, 127.0F);
  }

  RACKRAIL_BOTH static std::uint32_t code_of(float value, const Factor& factor,
                                             std::uint64_t random, unsigned which) {
    const std::uint32_t units = bits_of(value * factor.units_per_value + 0x1.8p23F) - 0x4b400000U;
    const auto chance = static_cast<std::uint32_t>(random >> (16U * which)) & 0x7fffU;
    std::int32_t code = static_cast<std::int32_t>(units + chance) >> 15;
    code = code > 127 ? 127 : code;
    code = code < -127 ? -127 : code;
    return static_cast<std::uint32_t>(code) & 0xffU;
  }

  RACKRAIL_BOTH static float float_of(std::uint32_t codes, unsigned which) {
    // 2²³ + code + 128, less that.
#if defined(__CUDA_ARCH__)
    const std::uint32_t bits = __byte_perm(codes ^ 0x80808080U, 0x4b000000U, 0x7440U + which);
#else
    const std::uint32_t bits = 0x4b000000U | ((codes >> (8U * which) & 0xffU) ^ 0x80U);
#endif
    return element::float_of(bits) - 8388736.0F;
  }
  RACKRAIL_BOTH static void floats_of(std::uint32_t codes, float (&floats)[4]) {
    for (unsigned which = 0; which < 4; ++which) {
      floats[which] = float_of(codes, which);
    }
  }
};

/// A format of 8-bit floating point with `kFraction` bits of fraction, the smallest normal number
/// 2^kSmallestExponent and the largest kLargest, without codes for what is not finite.
template <int kFraction, int kSmallestExponent>
struct Float8 {
  RACKRAIL_BOTH static std::uint32_t code_of(float value, const BlockDivisor& divisor) {
    const std::uint32_t magnitude = magnitude_of(divisor.quotient(value));
    // The sign is the value's own: the quotient of a negative zero may have lost it.
    return rounded_code<kFraction, kSmallestExponent>(magnitude) | (bits_of(value) >> 24U & 0x80U);
  }

  /// Of a magnitude of seven bits.
  RACKRAIL_BOTH static float number_of(std::uint32_t magnitude) {
    // With FP32's fields the number is 2^(kSmallestExponent + 126) times too small.
    constexpr std::uint32_t kFactorBits = static_cast<std::uint32_t>(127 + 126 + kSmallestExponent)
                                          << 23U;
    return element::float_of(magnitude << (23U - kFraction)) * element::float_of(kFactorBits);
  }
};

/// A format of plan/codecs/ with one scale per block. `Numbers` has its Format, its kLargest
/// number, the kSmallestBlock that has a scale, and `beyond(magnitude, bits)`: the bits of what
/// codes that are no finite number stand for, else `bits`. Where kHasHalves, on a device,
/// `halves_of(codes, pair)`: the first two of four codes, or the last two, as numbers of FP16.
template <typename Numbers>
struct Float8Block {
  static constexpr bool kIsRandom = false;
  using Factor = BlockDivisor;

  RACKRAIL_BOTH static float scale_of(float largest) {
    return largest < Numbers::kSmallestBlock ? 0.0F : scale_below<4>(largest, Numbers::kLargest);
  }
  RACKRAIL_BOTH static std::uint32_t code_of(float value, const Factor& divisor,
                                             std::uint64_t /*random*/, unsigned /*which*/) {
    return Numbers::Format::code_of(value, divisor);
  }
  RACKRAIL_BOTH static float float_of(std::uint32_t codes, unsigned which) {
    const std::uint32_t code = codes >> (8U * which) & 0xffU;
    const std::uint32_t magnitude = code & 0x7fU;
    const std::uint32_t number = bits_of(Numbers::Format::number_of(magnitude));
    return element::float_of(Numbers::beyond(magnitude, number) | (code & 0x80U) << 24U);
  }
  RACKRAIL_BOTH static void floats_of(std::uint32_t codes, float (&floats)[4]) {
    if constexpr (Numbers::kHasHalves) {  // each of these numbers is one of FP16
      floats_of_halves(Numbers::halves_of(codes, 0), floats[0], floats[1]);
      floats_of_halves(Numbers::halves_of(codes, 1), floats[2], floats[3]);
    } else {
      for (unsigned which = 0; which < 4; ++which) {
        floats[which] = float_of(codes, which);
      }
    }
  }
};

struct E4m3Numbers {
  using Format = Float8<3, -6>;
  static constexpr float kLargest = 448;
  static constexpr float kSmallestBlock = kLargest * 0x1.0p-121F;

  RACKRAIL_BOTH static std::uint32_t beyond(std::uint32_t magnitude, std::uint32_t bits) {
    return magnitude == 0x7fU ? kNanBits : bits;
  }
#if defined(__CUDA_ARCH__)
  static constexpr bool kHasHalves =
      __CUDA_ARCH__ >= 890;  // an instruction that converts two codes

  __device__ __forceinline__ static std::uint32_t halves_of(std::uint32_t codes, unsigned pair) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(codes >> (16U * pair));
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3);
    return halves.x | static_cast<std::uint32_t>(halves.y) << 16U;
  }
#else
  static constexpr bool kHasHalves = false;
#endif
};

struct E5m2Numbers {
  using Format = Float8<2, -14>;
  static constexpr float kLargest = 57344;
  static constexpr float kSmallestBlock = kLargest * 0x1.0p-114F;

  RACKRAIL_BOTH static std::uint32_t beyond(std::uint32_t magnitude, std::uint32_t bits) {
    const std::uint32_t no_number = magnitude == 0x7cU ? kInfinityBits : kNanBits;
    return magnitude >= 0x7cU ? no_number : bits;
  }
#if defined(__CUDA_ARCH__)
  static constexpr bool kHasHalves = true;

  __device__ __forceinline__ static std::uint32_t halves_of(std::uint32_t codes, unsigned pair) {
    return __byte_perm(codes, 0U, pair == 0 ? 0x1404U : 0x3424U);  // upper bytes, the lower ones 0
  }
#else
  static constexpr bool kHasHalves = false;
#endif
};

/// FP8 E4M3, as fp8 of plan/codecs/.
using E4m3 = Float8Block<E4m3Numbers>;
/// FP8 E5M2, as fp8e5m2 of plan/codecs/.
using E5m2 = Float8Block<E5m2Numbers>;

/// The scale of a block whose largest magnitude has these bits: not a number where that is no
/// finite number, 0 where it is too small for a scale.
template <typename Code>
RACKRAIL_BOTH float block_scale(std::uint32_t largest_magnitude) {
  return largest_magnitude >= kInfinityBits ? float_of(kNanBits)
                                            : Code::scale_of(float_of(largest_magnitude));
}

/// Random number of the four elements of which the first has the index `first`.
RACKRAIL_BOTH std::uint64_t random_of_four(std::uint64_t stream, std::uint64_t first) {
  return random_sequence(stream, first);
}

}  // namespace rackrail::runtime::element
