// IEEE binary16 ↔ binary32: round to nearest, ties to even; infinities and NaN are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rackrail::runtime {

/// One value, in portable integer arithmetic: what the vector path must agree with.
std::uint16_t to_half(float value);
float from_half(std::uint16_t half);

/// Arrays of the same length, with the conversion instructions of the CPU where it has them.
void to_half(std::span<const float> values, std::byte* halves);
void from_half(const std::byte* halves, std::span<float> values);
void add_half(const std::byte* halves, std::span<float> values);

}  // namespace rackrail::runtime
