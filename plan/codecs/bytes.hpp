// Values as the bytes they are on the wire. Always inlined, so that loops compiled for newer
// instruction sets may use them (vectors.hpp says why).
#pragma once

#include <bit>
#include <cstddef>

static_assert(std::endian::native == std::endian::little, "encoded forms are little-endian");

namespace rackrail::plan {

/// The value whose bytes start at `from`, which needs no alignment.
template <typename T>
[[gnu::always_inline]] inline T load(const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(std::byte* to, T value) {
  __builtin_memcpy(to, &value, sizeof value);
}

template <typename To, typename From>
[[gnu::always_inline]] inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace rackrail::plan
