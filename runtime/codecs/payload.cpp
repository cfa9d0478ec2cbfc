#include "runtime/codecs/payload.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "runtime/codecs/kernels.hpp"

namespace rackrail::runtime {
namespace {

void check(const plan::Codec& codec, const char* what, std::size_t found, std::size_t expected) {
  if (found != expected) {
    throw RuntimeFailure(fmt::format("codec {}: {} of {} instead of {}", plan::to_string(codec),
                                     what, found, expected));
  }
}

std::size_t encoded_bytes(const plan::Codec& codec, std::size_t elements) {
  return static_cast<std::size_t>(
      plan::encoded_size(codec, static_cast<std::int64_t>(elements)).count());
}

}  // namespace

void check_encoded_size(const plan::Codec& codec, std::span<const std::byte> encoded,
                        std::size_t elements) {
  check(codec, "an encoded slice with a size in bytes", encoded.size(),
        encoded_bytes(codec, elements));
}

void check_encode_buffers(const plan::Codec& codec, std::span<const float> input,
                          std::span<const float> residual, std::span<const std::byte> output) {
  check(codec, "an output buffer with a size in bytes", output.size(),
        encoded_bytes(codec, input.size()));
  if (!residual.empty()) {
    check(codec, "a residual with a number of elements", residual.size(), input.size());
  }
}

std::span<const float> compensated(std::span<const float> input, std::span<float> residual) {
  if (residual.empty()) {
    return input;
  }
  kernels().add(residual.data(), reinterpret_cast<const std::byte*>(input.data()), input.size());
  return residual;
}

}  // namespace rackrail::runtime
