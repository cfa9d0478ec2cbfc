// Random numbers that depend only on (key, counter): the same on every rank, thread and device.
//
// Stochastic rounding needs a stream that two encoders of the same value agree on, in any order
// of elements; a counter-based generator gives element i its number without a state. The mixing
// is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014) applied to key and counter.
#pragma once

#include <cstdint>

namespace rackrail {

inline constexpr std::uint64_t kMixIncrement = 0x9e3779b97f4a7c15ULL;
inline constexpr std::uint64_t kMixFactor1 = 0xbf58476d1ce4e5b9ULL;
inline constexpr std::uint64_t kMixFactor2 = 0x94d049bb133111ebULL;

constexpr std::uint64_t mix64(std::uint64_t x) {
  x += kMixIncrement;
  x = (x ^ (x >> 30U)) * kMixFactor1;
  x = (x ^ (x >> 27U)) * kMixFactor2;
  return x ^ (x >> 31U);
}

/// 64 random bits of counter `i` in the stream `key`.
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t i) {
  return mix64(key ^ mix64(i));
}

/// Number `i` of the sequence that SplitMix64 makes of the seed `key`: half the work of
/// random_bits, for keys that are random numbers themselves. (Those of keys whose difference is a
/// small multiple of the constant here are the same sequence, shifted.)
constexpr std::uint64_t random_sequence(std::uint64_t key, std::uint64_t i) {
  return mix64(key + i * kMixIncrement);
}

/// Uniform in [0, 1) with 24 random bits, as floats have.
constexpr float random_unit_float(std::uint64_t key, std::uint64_t i) {
  return static_cast<float>(random_bits(key, i) >> 40U) * 0x1.0p-24F;
}

/// Uniform in [0, 1) with 53 random bits.
constexpr double random_unit(std::uint64_t key, std::uint64_t i) {
  return static_cast<double>(random_bits(key, i) >> 11U) * 0x1.0p-53;
}

}  // namespace rackrail
