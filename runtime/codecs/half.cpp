#include "runtime/codecs/half.hpp"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rackrail::runtime {

std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN stays a quiet NaN with its upper payload
    return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x3ffU));
  }
  if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    return static_cast<std::uint16_t>(sign | 0x7c00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal halves are multiples of 2^-24
    if (magnitude < 0x33000000U) {  // below 2^-25 rounds to zero
      return static_cast<std::uint16_t>(sign);
    }
    const std::uint32_t shift = 126U - (magnitude >> 23U);  // 14..24
    const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = mantissa >> shift;
    const std::uint32_t rest = mantissa & ((1U << shift) - 1U);
    const std::uint32_t half = 1U << (shift - 1U);
    const std::uint32_t up = (rest > half || (rest == half && (kept & 1U) != 0)) ? 1U : 0U;
    return static_cast<std::uint16_t>(sign | (kept + up));
  }
  const std::uint32_t rebased = magnitude - 0x38000000U;  // exponent bias 127 → 15
  const std::uint32_t up = 0xfffU + ((rebased >> 13U) & 1U);
  return static_cast<std::uint16_t>(sign | ((rebased + up) >> 13U));
}

float from_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0x1fU) {
    const std::uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (mantissa << 13U));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

namespace {

void store_half(std::byte* at, std::uint16_t half) { std::memcpy(at, &half, sizeof half); }
std::uint16_t load_half(const std::byte* at) {
  std::uint16_t half = 0;
  std::memcpy(&half, at, sizeof half);
  return half;
}

#if defined(__x86_64__)
constexpr std::size_t kLanes = 8;

bool has_f16c() {
  static const bool kHas = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return kHas;
}

__attribute__((target("avx2,f16c"))) std::size_t to_half_vector(std::span<const float> values,
                                                                std::byte* halves) {
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    const __m128i packed = _mm256_cvtps_ph(_mm256_loadu_ps(values.data() + i),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 2 * i), packed);
  }
  return i;
}

template <bool kAdd>
__attribute__((target("avx2,f16c"))) std::size_t from_half_vector(const std::byte* halves,
                                                                  std::span<float> values) {
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    __m256 wide =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 2 * i)));
    if constexpr (kAdd) {
      wide = _mm256_add_ps(_mm256_loadu_ps(values.data() + i), wide);
    }
    _mm256_storeu_ps(values.data() + i, wide);
  }
  return i;
}
#endif

}  // namespace

void to_half(std::span<const float> values, std::byte* halves) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (has_f16c()) {
    i = to_half_vector(values, halves);
  }
#endif
  for (; i < values.size(); ++i) {
    store_half(halves + 2 * i, to_half(values[i]));
  }
}

void from_half(const std::byte* halves, std::span<float> values) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (has_f16c()) {
    i = from_half_vector<false>(halves, values);
  }
#endif
  for (; i < values.size(); ++i) {
    values[i] = from_half(load_half(halves + 2 * i));
  }
}

void add_half(const std::byte* halves, std::span<float> values) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (has_f16c()) {
    i = from_half_vector<true>(halves, values);
  }
#endif
  for (; i < values.size(); ++i) {
    values[i] += from_half(load_half(halves + 2 * i));
  }
}

}  // namespace rackrail::runtime
