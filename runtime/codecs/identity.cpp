// FP32 as it is.
#include <cstring>

#include "runtime/codecs/codecs.hpp"

namespace rackrail::runtime {

namespace {

class IdentityCodec final : public Codec {
 public:
  const plan::Codec& descriptor() const override { return descriptor_; }

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey,
              std::span<std::byte> output) const override {
    require_encoded_size(descriptor_, output.size(), input.size());
    if (residual.empty()) {
      std::memcpy(output.data(), input.data(), input.size_bytes());
      return;
    }
    for (std::size_t i = 0; i < input.size(); ++i) {
      const float value = input[i] + residual[i];
      std::memcpy(output.data() + i * sizeof(float), &value, sizeof(float));
      residual[i] = 0;
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    require_encoded_size(descriptor_, encoded.size(), output.size());
    std::memcpy(output.data(), encoded.data(), encoded.size());
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    require_encoded_size(descriptor_, encoded.size(), output.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      float value = 0;
      std::memcpy(&value, encoded.data() + i * sizeof(float), sizeof(float));
      output[i] += value;
    }
  }

 private:
  plan::Codec descriptor_;
};

}  // namespace

std::unique_ptr<Codec> make_identity_codec() { return std::make_unique<IdentityCodec>(); }

}  // namespace rackrail::runtime
