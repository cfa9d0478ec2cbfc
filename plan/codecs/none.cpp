// FP32 as it is.
#include <algorithm>

#include "plan/codecs/cpu_arithmetic.hpp"
#include "plan/codecs/format.hpp"
#include "plan/codecs/registry.hpp"

namespace rackrail::plan {
namespace {

class PlainArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey /*key*/,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    const std::span<const std::byte> bytes = std::as_bytes(compensated(input, residual));
    std::copy(bytes.begin(), bytes.end(), output.begin());
    std::fill(residual.begin(), residual.end(), 0.0F);
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    const std::span<std::byte> bytes = std::as_writable_bytes(output);
    std::copy(encoded.begin(), encoded.end(), bytes.begin());
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    add(output, encoded);
  }
};

class PlainFormat final : public CodecFormat {
 public:
  using CodecFormat::CodecFormat;

  Bytes encoded_size(const Codec& /*codec*/, std::int64_t elements) const override {
    return Bytes(elements) * 4;
  }
  double relative_error(const Codec& /*codec*/) const override { return 0; }
  CodecTraffic traffic(const Codec& /*codec*/) const override {
    return {.encode = 4 + 4, .decode_add = 4 + 4 + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    return std::make_unique<PlainArithmetic>(codec);
  }
};

}  // namespace

const CodecFormat& none_format() {
  static const PlainFormat kFormat(
      {.name = "none", .is_elementwise = true, .survives_many_hops = true, .is_default = true});
  return kFormat;
}

}  // namespace rackrail::plan
