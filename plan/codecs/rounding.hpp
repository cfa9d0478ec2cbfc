// Codecs that round each element by itself to a narrower floating-point format: FP16, BF16. Their
// loops are in rounding_loops.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"

namespace rackrail::plan {

/// The format of a codec of 16 bits: its traits, how many significant bits it keeps, and what makes
/// its arithmetic.
class RoundingFormat final : public CodecFormat {
 public:
  using Maker = std::unique_ptr<CodecArithmetic> (*)(const Codec& codec);

  RoundingFormat(CodecTraits traits, int significant_bits, Maker maker)
      : CodecFormat(std::move(traits)), significant_bits_(significant_bits), maker_(maker) {}

  Bytes encoded_size(const Codec& /*codec*/, std::int64_t elements) const override {
    return Bytes(elements) * kCodeBytes;
  }
  double relative_error(const Codec& /*codec*/) const override {
    return rounding_error(significant_bits_);
  }
  CodecTraffic traffic(const Codec& /*codec*/) const override {
    return {.encode = 4 + kCodeBytes, .decode_add = kCodeBytes + 4 + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    return maker_(codec);
  }

 private:
  static constexpr std::int64_t kCodeBytes = 2;
  int significant_bits_;
  Maker maker_;
};

}  // namespace rackrail::plan
