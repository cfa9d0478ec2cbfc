#include "runtime/codecs/kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/random.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define RACKRAIL_X86_KERNELS 1
#endif

static_assert(std::endian::native == std::endian::little, "encoded forms are little-endian");

namespace rackrail::runtime {
namespace {

// The loops must be inlined into the functions below that carry the instruction set; nothing in
// them may call a function of the standard library, which could be shared with other code.
#define RACKRAIL_LOOP inline __attribute__((always_inline))

template <typename T>
RACKRAIL_LOOP T load(const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <typename To, typename From>
RACKRAIL_LOOP To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

RACKRAIL_LOOP void add_loop(float* sum, const std::byte* addend, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += load<float>(addend + 4 * i);
  }
}

RACKRAIL_LOOP std::uint16_t half_of(float value) {
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
  return static_cast<std::uint16_t>(sign | half);
}

RACKRAIL_LOOP float float_of(std::uint16_t half) {
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

RACKRAIL_LOOP void encode_fp16_loop(const float* input, std::byte* output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t half = half_of(input[i]);
    __builtin_memcpy(output + 2 * i, &half, sizeof half);
  }
}

RACKRAIL_LOOP void decode_fp16_loop(const std::byte* input, float* output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    output[i] = float_of(load<std::uint16_t>(input + 2 * i));
  }
}

RACKRAIL_LOOP void decode_add_fp16_loop(const std::byte* input, float* output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    output[i] += float_of(load<std::uint16_t>(input + 2 * i));
  }
}

RACKRAIL_LOOP std::uint32_t largest_magnitude_loop(const float* input, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = bits_as<std::uint32_t>(input[i]) & 0x7fffffffU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

RACKRAIL_LOOP void encode_int8_loop(const float* input, float scale, std::uint64_t stream,
                                    std::uint64_t first, std::byte* codes, std::size_t count) {
  // In two passes over a piece that stays in the first-level cache: 64-bit arithmetic apart from
  // 32-bit arithmetic, so that each is vectorised at its own width.
  constexpr std::size_t kPiece = 256;
  float thresholds[kPiece];
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t size = count - begin < kPiece ? count - begin : kPiece;
    for (std::size_t i = 0; i < size; ++i) {
      // random_unit_float, through the 32-bit conversion that vector units have.
      const auto bits = static_cast<std::int32_t>(random_bits(stream, first + begin + i) >> 40U);
      thresholds[i] = static_cast<float>(bits) * 0x1.0p-24F;
    }
    for (std::size_t i = 0; i < size; ++i) {
      const float exact = input[begin + i] / scale;
      auto code = static_cast<std::int32_t>(exact);
      code -= static_cast<float>(code) > exact ? 1 : 0;  // towards −∞
      // Compared with the fraction, which is exact; exact + threshold would be rounded.
      code += thresholds[i] < exact - static_cast<float>(code) ? 1 : 0;
      code = code > 127 ? 127 : code;
      code = code < -127 ? -127 : code;
      codes[begin + i] = static_cast<std::byte>(static_cast<std::uint8_t>(code));
    }
  }
}

RACKRAIL_LOOP void decode_int8_loop(const std::byte* codes, float scale, float* output,
                                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    output[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
  }
}

RACKRAIL_LOOP void decode_add_int8_loop(const std::byte* codes, float scale, float* output,
                                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    output[i] += static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
  }
}

// One instruction set: every loop above under its attribute, except binary16 where the set has
// instructions for it.
#define RACKRAIL_KERNELS(SET, ATTRIBUTE)                                                       \
  ATTRIBUTE void add_##SET(float* sum, const std::byte* addend, std::size_t count) {           \
    add_loop(sum, addend, count);                                                              \
  }                                                                                            \
  ATTRIBUTE std::uint32_t largest_magnitude_##SET(const float* input, std::size_t count) {     \
    return largest_magnitude_loop(input, count);                                               \
  }                                                                                            \
  ATTRIBUTE void encode_int8_##SET(const float* input, float scale, std::uint64_t stream,      \
                                   std::uint64_t first, std::byte* codes, std::size_t count) { \
    encode_int8_loop(input, scale, stream, first, codes, count);                               \
  }                                                                                            \
  ATTRIBUTE void decode_int8_##SET(const std::byte* codes, float scale, float* output,         \
                                   std::size_t count) {                                        \
    decode_int8_loop(codes, scale, output, count);                                             \
  }                                                                                            \
  ATTRIBUTE void decode_add_int8_##SET(const std::byte* codes, float scale, float* output,     \
                                       std::size_t count) {                                    \
    decode_add_int8_loop(codes, scale, output, count);                                         \
  }

#define RACKRAIL_PLAIN
RACKRAIL_KERNELS(portable, RACKRAIL_PLAIN)

void encode_fp16_portable(const float* input, std::byte* output, std::size_t count) {
  encode_fp16_loop(input, output, count);
}
void decode_fp16_portable(const std::byte* input, float* output, std::size_t count) {
  decode_fp16_loop(input, output, count);
}
void decode_add_fp16_portable(const std::byte* input, float* output, std::size_t count) {
  decode_add_fp16_loop(input, output, count);
}

constexpr Kernels kPortable{.name = "portable",
                            .add = add_portable,
                            .encode_fp16 = encode_fp16_portable,
                            .decode_fp16 = decode_fp16_portable,
                            .decode_add_fp16 = decode_add_fp16_portable,
                            .largest_magnitude = largest_magnitude_portable,
                            .encode_int8 = encode_int8_portable,
                            .decode_int8 = decode_int8_portable,
                            .decode_add_int8 = decode_add_int8_portable};

#if defined(RACKRAIL_X86_KERNELS)

#define RACKRAIL_AVX2 __attribute__((target("avx2,f16c")))
#define RACKRAIL_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512vl,avx512dq,avx512bw")))
RACKRAIL_KERNELS(avx2, RACKRAIL_AVX2)
RACKRAIL_KERNELS(avx512, RACKRAIL_AVX512)

constexpr std::size_t kLanes = 8;

RACKRAIL_AVX2 void encode_fp16_f16c(const float* input, std::byte* output, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(input + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(output + 2 * i), halves);
  }
  encode_fp16_loop(input + i, output + 2 * i, count - i);
}

RACKRAIL_AVX2 void decode_fp16_f16c(const std::byte* input, float* output, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(input + 2 * i));
    _mm256_storeu_ps(output + i, _mm256_cvtph_ps(halves));
  }
  decode_fp16_loop(input + 2 * i, output + i, count - i);
}

RACKRAIL_AVX2 void decode_add_fp16_f16c(const std::byte* input, float* output, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(input + 2 * i));
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(output + i), _mm256_cvtph_ps(halves));
    _mm256_storeu_ps(output + i, sum);
  }
  decode_add_fp16_loop(input + 2 * i, output + i, count - i);
}

constexpr Kernels kAvx2{.name = "AVX2, F16C",
                        .add = add_avx2,
                        .encode_fp16 = encode_fp16_f16c,
                        .decode_fp16 = decode_fp16_f16c,
                        .decode_add_fp16 = decode_add_fp16_f16c,
                        .largest_magnitude = largest_magnitude_avx2,
                        .encode_int8 = encode_int8_avx2,
                        .decode_int8 = decode_int8_avx2,
                        .decode_add_int8 = decode_add_int8_avx2};

constexpr Kernels kAvx512{.name = "AVX-512",
                          .add = add_avx512,
                          .encode_fp16 = encode_fp16_f16c,
                          .decode_fp16 = decode_fp16_f16c,
                          .decode_add_fp16 = decode_add_fp16_f16c,
                          .largest_magnitude = largest_magnitude_avx512,
                          .encode_int8 = encode_int8_avx512,
                          .decode_int8 = decode_int8_avx512,
                          .decode_add_int8 = decode_add_int8_avx512};

bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

#endif

std::vector<Kernels> find_kernels() {
  std::vector<Kernels> found{kPortable};
#if defined(RACKRAIL_X86_KERNELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && has_f16c()) {
    found.push_back(kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      found.push_back(kAvx512);
    }
  }
#endif
  return found;
}

}  // namespace

std::span<const Kernels> usable_kernels() {
  static const std::vector<Kernels> kFound = find_kernels();
  return kFound;
}

const Kernels& kernels() {
  static const Kernels kBest = usable_kernels().back();
  return kBest;
}

}  // namespace rackrail::runtime
