#include "plan/codecs/cpu_arithmetic.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/cpu_arithmetic.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/vectors.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

void add_to(float* sum, const std::byte* addend, std::size_t count) {
  each_vector(Floats(), count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), load_vector(d, addend + 4 * i)), d, sum + i);
  });
}

std::uint32_t find_largest_magnitude(const float* values, std::size_t count) {
  return largest_magnitude_of(
      count, [=](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, values + i); });
}

void keep_finite(float* values, std::size_t count) {
  each_vector(Floats(), count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(finite_or_zero(hn::LoadU(d, values + i)), d, values + i);
  });
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {
namespace {

HWY_EXPORT(add_to);
HWY_EXPORT(find_largest_magnitude);
HWY_EXPORT(keep_finite);

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
                                                  std::span<float> residual) {
  if (residual.empty()) {
    return input;
  }
  add(residual, std::as_bytes(input));
  return residual;
}

void add(std::span<float> sum, std::span<const std::byte> addend) {
  HWY_DYNAMIC_DISPATCH(add_to)(sum.data(), addend.data(), sum.size());
}

std::uint32_t largest_magnitude(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(find_largest_magnitude)(values.data(), values.size());
}

void drop_overflow(std::span<float> residual) {
  HWY_DYNAMIC_DISPATCH(keep_finite)(residual.data(), residual.size());
}

}  // namespace rackrail::plan
#endif
