// IEEE binary16, rounded to nearest even. Encoding what was decoded gives the same bytes; NaN keeps
// the upper bits of its payload and becomes quiet.
#include "plan/codecs/registry.hpp"
#include "plan/codecs/rounding.hpp"

#if defined(RACKRAIL_X86_LOOPS)
#include <immintrin.h>
#endif

namespace rackrail::plan {
namespace {

#if defined(RACKRAIL_X86_LOOPS)
constexpr std::size_t kLanes = 8;
#endif

struct Half {
  using Code = std::uint16_t;

  RACKRAIL_LOOP Code code_of(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000U) {
      half = 0x7e00U | ((magnitude >> 13U) & 0x3ffU);
    } else if (magnitude >= 0x477ff000U) {
      half = 0x7c00U;  // 65520 and above: the tie goes to the even neighbour, infinity
    } else if (magnitude >= 0x38800000U) {
      // Normal: a bias of half a unit less one, plus the bit that decides ties, then truncation; a
      // carry out of the mantissa correctly increments the exponent.
      half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
    } else {
      // Subnormal or zero: adding 0.5 makes the float adder round to multiples of 2⁻²⁴.
      half = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3f000000U;
    }
    return static_cast<Code>(sign | half);
  }

  RACKRAIL_LOOP float float_of(Code half) {
    const std::uint32_t sign = (half & 0x8000U) << 16U;
    const std::uint32_t magnitude = half & 0x7fffU;
    std::uint32_t bits = 0;
    if (magnitude > 0x7c00U) {
      bits = 0x7fc00000U | ((magnitude & 0x3ffU) << 13U);
    } else if (magnitude == 0x7c00U) {
      bits = 0x7f800000U;
    } else if (magnitude >= 0x400U) {
      bits = (magnitude << 13U) + 0x38000000U;
    } else {
      bits = bits_as<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) *
                                    0x1.0p-24F);
    }
    return bits_as<float>(sign | bits);
  }

#if defined(RACKRAIL_X86_LOOPS)
  // Processors that have AVX2 here have instructions for binary16 too.
  RACKRAIL_AVX2 static void encode_f16c(const float* input, std::byte* output, std::size_t count) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(input + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(output + 2 * i), halves);
    }
    EncodeEach<Half>::run(input + i, output + 2 * i, count - i);
  }
  RACKRAIL_AVX2 static void decode_f16c(const std::byte* input, float* output, std::size_t count) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(input + 2 * i));
      _mm256_storeu_ps(output + i, _mm256_cvtph_ps(halves));
    }
    DecodeEach<Half>::run(input + 2 * i, output + i, count - i);
  }
  RACKRAIL_AVX2 static void decode_add_f16c(const std::byte* input, float* output,
                                            std::size_t count) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(input + 2 * i));
      const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(output + i), _mm256_cvtph_ps(halves));
      _mm256_storeu_ps(output + i, sum);
    }
    DecodeAddEach<Half>::run(input + 2 * i, output + i, count - i);
  }
#endif

  static void encode(InstructionSet set, const float* input, std::byte* output, std::size_t count) {
#if defined(RACKRAIL_X86_LOOPS)
    if (set != InstructionSet::kPortable) {
      return encode_f16c(input, output, count);
    }
#endif
    vectorised<EncodeEach<Half>>(set, input, output, count);
  }
  static void decode(InstructionSet set, const std::byte* input, float* output, std::size_t count) {
#if defined(RACKRAIL_X86_LOOPS)
    if (set != InstructionSet::kPortable) {
      return decode_f16c(input, output, count);
    }
#endif
    vectorised<DecodeEach<Half>>(set, input, output, count);
  }
  static void decode_add(InstructionSet set, const std::byte* input, float* output,
                         std::size_t count) {
#if defined(RACKRAIL_X86_LOOPS)
    if (set != InstructionSet::kPortable) {
      return decode_add_f16c(input, output, count);
    }
#endif
    vectorised<DecodeAddEach<Half>>(set, input, output, count);
  }
};

}  // namespace

const CodecFormat& fp16_format() {
  static const RoundingFormat<Half> kFormat(
      {.name = "fp16", .is_elementwise = true, .survives_many_hops = true, .is_default = true}, 11);
  return kFormat;
}

}  // namespace rackrail::plan
