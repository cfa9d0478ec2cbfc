// IEEE binary16, rounded to nearest even. Encoding what was decoded gives the same bytes.
#include <array>

#include "runtime/codecs/factories.hpp"
#include "runtime/codecs/kernels.hpp"
#include "runtime/codecs/payload.hpp"

namespace rackrail::runtime {
namespace {

class Fp16Codec final : public Codec {
 public:
  explicit Fp16Codec(const plan::Codec& descriptor) : descriptor_(descriptor) {}

  const plan::Codec& descriptor() const override { return descriptor_; }

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey /*key*/,
              std::span<std::byte> output) const override {
    check_encode_buffers(descriptor_, input, residual, output);
    const std::span<const float> values = compensated(input, residual);
    kernels().encode_fp16(values.data(), output.data(), values.size());
    subtract_decoded(output, residual);
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(descriptor_, encoded, output.size());
    kernels().decode_fp16(encoded.data(), output.data(), output.size());
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(descriptor_, encoded, output.size());
    kernels().decode_add_fp16(encoded.data(), output.data(), output.size());
  }

 private:
  static void subtract_decoded(std::span<const std::byte> encoded, std::span<float> residual) {
    std::array<float, 256> decoded;
    for (std::size_t begin = 0; begin < residual.size(); begin += decoded.size()) {
      const std::size_t size = std::min(decoded.size(), residual.size() - begin);
      kernels().decode_fp16(encoded.data() + 2 * begin, decoded.data(), size);
      for (std::size_t i = 0; i < size; ++i) {
        const float error = residual[begin + i] - decoded[i];
        // Infinite where the value is beyond binary16: what cannot be sent later is not kept.
        residual[begin + i] = error - error == 0 ? error : 0;
      }
    }
  }

  plan::Codec descriptor_;
};

}  // namespace

std::unique_ptr<Codec> make_fp16_codec(const plan::Codec& descriptor) {
  return std::make_unique<Fp16Codec>(descriptor);
}

}  // namespace rackrail::runtime
