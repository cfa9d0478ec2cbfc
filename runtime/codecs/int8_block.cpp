// Blocks of 8-bit codes with one FP32 scale each, rounded stochastically.
//
// Layout of n elements: ⌈n/block⌉ scales (FP32), then n codes (signed bytes). Blocks are counted
// from the first element of the encoded range.
//
// A block with largest magnitude m has the scale s = m/127, rounded towards zero to 17 significant
// bits, and x becomes ⌊x/s⌋ or ⌈x/s⌉ with the probabilities that make the expectation x.
//
// Encoding what was decoded gives the same bytes, whatever the random numbers (idempotence): a code
// q has at most 7 significant bits, so q·s fits into FP32's 24 and is exact. s·127 ≤ m, hence
// fl(m/s) ≥ 127 and the largest element gets the code ±127 for certain; decoded, it is m' = 127·s,
// fl(m'/127) = s exactly, and s has its 17 bits already: the same scale. Then (q·s)/s = q exactly,
// the fraction is 0, and no random number is below it.
//
// The price is that m may lie up to 2⁻¹⁶ (relative) beyond the last code: 0.002 of a step.
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "runtime/codecs/factories.hpp"
#include "runtime/codecs/kernels.hpp"
#include "runtime/codecs/payload.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000U;
constexpr std::uint32_t kDroppedBits = 7;  // of 24

/// NaN for a block that holds one or an infinity, 0 for one that is too small for a scale.
float block_scale(std::uint32_t largest_magnitude) {
  if (largest_magnitude >= kInfinity) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const auto largest = std::bit_cast<float>(largest_magnitude);
  const std::uint32_t bits = (std::bit_cast<std::uint32_t>(largest / 127) >> kDroppedBits)
                             << kDroppedBits;
  const auto scale = std::bit_cast<float>(bits);
  // The division may have rounded up to a number of 17 bits.
  return scale * 127 > largest ? std::bit_cast<float>(bits - (1U << kDroppedBits)) : scale;
}

class Int8BlockCodec final : public Codec {
 public:
  explicit Int8BlockCodec(const plan::Codec& descriptor) : descriptor_(descriptor) {}

  const plan::Codec& descriptor() const override { return descriptor_; }

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
              std::span<std::byte> output) const override {
    check_encode_buffers(descriptor_, input, residual, output);
    const Kernels& run = kernels();
    std::byte* scales = output.data();
    std::byte* codes = output.data() + scale_bytes(input.size());
    for (std::size_t begin = 0; begin < input.size(); begin += descriptor_.block) {
      const std::size_t size = std::min<std::size_t>(descriptor_.block, input.size() - begin);
      const std::span<float> error = residual.empty() ? residual : residual.subspan(begin, size);
      const std::span<const float> values = compensated(input.subspan(begin, size), error);
      const float scale = block_scale(run.largest_magnitude(values.data(), size));
      std::memcpy(scales, &scale, sizeof scale);
      scales += sizeof scale;
      if (scale > 0) {
        run.encode_int8(values.data(), scale, key.stream,
                        static_cast<std::uint64_t>(key.first_element) + begin, codes + begin, size);
        subtract_decoded(codes + begin, scale, error);
      } else {
        std::memset(codes + begin, 0, size);
        if (scale != scale) {
          // One overflow must not stay in the feedback of all later steps.
          std::fill(error.begin(), error.end(), 0.0F);
        }
      }
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    each_block(encoded, output, kernels().decode_int8);
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    each_block(encoded, output, kernels().decode_add_int8);
  }

 private:
  std::size_t scale_bytes(std::size_t elements) const {
    return (elements + descriptor_.block - 1) / descriptor_.block * sizeof(float);
  }

  static void subtract_decoded(const std::byte* codes, float scale, std::span<float> error) {
    if (!error.empty()) {
      // x − q·s = x + q·(−s)
      kernels().decode_add_int8(codes, -scale, error.data(), error.size());
    }
  }

  void each_block(std::span<const std::byte> encoded, std::span<float> output,
                  decltype(Kernels::decode_int8) decode_block) const {
    check_encoded_size(descriptor_, encoded, output.size());
    const std::byte* scales = encoded.data();
    const std::byte* codes = encoded.data() + scale_bytes(output.size());
    for (std::size_t begin = 0; begin < output.size(); begin += descriptor_.block) {
      float scale = 0;
      std::memcpy(&scale, scales, sizeof scale);
      scales += sizeof scale;
      const std::size_t size = std::min<std::size_t>(descriptor_.block, output.size() - begin);
      decode_block(codes + begin, scale, output.data() + begin, size);
    }
  }

  plan::Codec descriptor_;
};

}  // namespace

std::unique_ptr<Codec> make_int8_block_codec(const plan::Codec& descriptor) {
  if (descriptor.block == 0) {
    throw RuntimeFailure("codec int8: blocks of no elements");
  }
  return std::make_unique<Int8BlockCodec>(descriptor);
}

}  // namespace rackrail::runtime
