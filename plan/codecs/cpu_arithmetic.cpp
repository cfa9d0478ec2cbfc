#include "plan/codecs/cpu_arithmetic.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace rackrail::plan {
namespace {

struct Add {
  RACKRAIL_LOOP void run(float* sum, const std::byte* addend, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += load<float>(addend + 4 * i);
    }
  }
};

struct LargestMagnitude {
  RACKRAIL_LOOP std::uint32_t run(const float* values, std::size_t count) {
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t magnitude = bits_as<std::uint32_t>(values[i]) & 0x7fffffffU;
      largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
  }
};

void check(const Codec& codec, const char* what, std::size_t found, std::size_t expected) {
  if (found != expected) {
    throw RuntimeFailure(
        fmt::format("codec {}: {} of {} instead of {}", to_string(codec), what, found, expected));
  }
}

std::size_t encoded_bytes(const Codec& codec, std::size_t elements) {
  return static_cast<std::size_t>(encoded_size(codec, static_cast<std::int64_t>(elements)).count());
}

}  // namespace

void CpuArithmetic::check_encoded_size(std::span<const std::byte> encoded,
                                       std::size_t elements) const {
  check(descriptor_, "an encoded slice with a size in bytes", encoded.size(),
        encoded_bytes(descriptor_, elements));
}

void CpuArithmetic::check_encode_buffers(std::span<const float> input,
                                         std::span<const float> residual,
                                         std::span<const std::byte> output) const {
  check(descriptor_, "an output buffer with a size in bytes", output.size(),
        encoded_bytes(descriptor_, input.size()));
  if (!residual.empty()) {
    check(descriptor_, "a residual with a number of elements", residual.size(), input.size());
  }
}

std::span<const float> CpuArithmetic::compensated(std::span<const float> input,
                                                  std::span<float> residual) const {
  if (residual.empty()) {
    return input;
  }
  add(residual, std::as_bytes(input));
  return residual;
}

void CpuArithmetic::add(std::span<float> sum, std::span<const std::byte> addend) const {
  vectorised<Add>(set_, sum.data(), addend.data(), sum.size());
}

std::uint32_t CpuArithmetic::largest_magnitude(std::span<const float> values) const {
  return vectorised<LargestMagnitude>(set_, values.data(), values.size());
}

void drop_overflow(std::span<float> residual) {
  for (float& error : residual) {
    error = error - error == 0 ? error : 0;
  }
}

}  // namespace rackrail::plan
