// FP32 as it is.
#include <algorithm>
#include <cstring>

#include "runtime/codecs/factories.hpp"
#include "runtime/codecs/kernels.hpp"
#include "runtime/codecs/payload.hpp"

namespace rackrail::runtime {
namespace {

class PlainCodec final : public Codec {
 public:
  explicit PlainCodec(const plan::Codec& descriptor) : descriptor_(descriptor) {}

  const plan::Codec& descriptor() const override { return descriptor_; }

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey /*key*/,
              std::span<std::byte> output) const override {
    check_encode_buffers(descriptor_, input, residual, output);
    const std::span<const std::byte> bytes = std::as_bytes(compensated(input, residual));
    std::copy(bytes.begin(), bytes.end(), output.begin());
    std::fill(residual.begin(), residual.end(), 0.0F);
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(descriptor_, encoded, output.size());
    const std::span<std::byte> bytes = std::as_writable_bytes(output);
    std::copy(encoded.begin(), encoded.end(), bytes.begin());
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(descriptor_, encoded, output.size());
    kernels().add(output.data(), encoded.data(), output.size());
  }

 private:
  plan::Codec descriptor_;
};

}  // namespace

std::unique_ptr<Codec> make_plain_codec(const plan::Codec& descriptor) {
  return std::make_unique<PlainCodec>(descriptor);
}

}  // namespace rackrail::runtime
