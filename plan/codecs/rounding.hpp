// Codecs that round each element by itself to a narrower floating-point format: FP16, BF16.
#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "plan/codecs/cpu_arithmetic.hpp"
#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"

namespace rackrail::plan {

/// Loops over a Narrow with a type Code and static loops `Code code_of(float)` and
/// `float float_of(Code)`.
template <typename Narrow>
struct EncodeEach {
  using Code = typename Narrow::Code;
  RACKRAIL_LOOP void run(const float* input, std::byte* output, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      store(output + sizeof(Code) * i, Narrow::code_of(input[i]));
    }
  }
};
template <typename Narrow>
struct DecodeEach {
  using Code = typename Narrow::Code;
  RACKRAIL_LOOP void run(const std::byte* input, float* output, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      output[i] = Narrow::float_of(load<Code>(input + sizeof(Code) * i));
    }
  }
};
template <typename Narrow>
struct DecodeAddEach {
  using Code = typename Narrow::Code;
  RACKRAIL_LOOP void run(const std::byte* input, float* output, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      output[i] += Narrow::float_of(load<Code>(input + sizeof(Code) * i));
    }
  }
};

/// A Narrow as above that also has encode, decode and decode_add(set, from, to, count), usually the
/// three loops.
template <typename Narrow>
class RoundingArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey /*key*/,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    const std::span<const float> values = compensated(input, residual);
    Narrow::encode(set(), values.data(), output.data(), values.size());
    subtract_decoded(output, residual);
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    Narrow::decode(set(), encoded.data(), output.data(), output.size());
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    Narrow::decode_add(set(), encoded.data(), output.data(), output.size());
  }

 private:
  void subtract_decoded(std::span<const std::byte> encoded, std::span<float> residual) const {
    std::array<float, 256> decoded;
    for (std::size_t begin = 0; begin < residual.size(); begin += decoded.size()) {
      const std::size_t size = std::min(decoded.size(), residual.size() - begin);
      Narrow::decode(set(), encoded.data() + sizeof(typename Narrow::Code) * begin, decoded.data(),
                     size);
      for (std::size_t i = 0; i < size; ++i) {
        residual[begin + i] -= decoded[i];
      }
    }
    // Infinite where the value is beyond the format: what cannot be sent later is not kept.
    drop_overflow(residual);
  }
};

/// The format of such a codec: its traits and how many significant bits it keeps.
template <typename Narrow>
class RoundingFormat final : public CodecFormat {
 public:
  RoundingFormat(CodecTraits traits, int significant_bits)
      : CodecFormat(std::move(traits)), significant_bits_(significant_bits) {}

  Bytes encoded_size(const Codec& /*codec*/, std::int64_t elements) const override {
    return Bytes(elements) * kCodeBytes;
  }
  double relative_error(const Codec& /*codec*/) const override {
    return rounding_error(significant_bits_);
  }
  CodecTraffic traffic(const Codec& /*codec*/) const override {
    return {.encode = 4 + kCodeBytes, .decode_add = kCodeBytes + 4 + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec,
                                              InstructionSet set) const override {
    return std::make_unique<RoundingArithmetic<Narrow>>(codec, set);
  }

 private:
  static constexpr std::int64_t kCodeBytes = sizeof(typename Narrow::Code);
  int significant_bits_;
};

}  // namespace rackrail::plan
