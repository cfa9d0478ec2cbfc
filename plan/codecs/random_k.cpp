// One element at random of each of k strata of equal size, without indices: the receiver draws the
// same ones from the seed that is sent.
//
// Layout of k kept elements: the seed (64 bits), then k values (FP32) in ascending order of their
// index. Stratum j is the elements ⌊j·n/k⌋ to ⌊(j+1)·n/k⌋, and its element is drawn uniformly by
// random_bits(seed, j). So every element is sent with a probability of k/n (1/⌊n/k⌋ or 1/⌈n/k⌉
// where k does not divide n), as in random-k sparsification (Stich, Cordonnier, Jaggi, "Sparsified
// SGD with memory", NeurIPS 2018), in one pass and with the indices in order.
//
// Values are sent as they are and the rest is fed back. Scaling them by n/k instead would make the
// codec unbiased, but with a relative variance of n/k − 1: an error of 9.9 times the gradient at a
// density of 1 %. The two do not go together: scaled, the operator is no contraction, and the
// residual grows without bound. One element of a stratum is a contraction by 1 − k/n.
//
// A NaN or an infinity anywhere makes all that is sent NaN: which elements travel is chance, and a
// receiver must notice an overflow in the step in which it happens.
#include <cmath>
#include <limits>

#include "base/random.hpp"
#include "plan/codecs/bytes.hpp"
#include "plan/codecs/cpu_arithmetic.hpp"
#include "plan/codecs/format.hpp"
#include "plan/codecs/registry.hpp"

namespace rackrail::plan {
namespace {

constexpr std::size_t kSeedBytes = 8;

/// The indices that a seed stands for, one after the other. Their bounds are kept in whole numbers,
/// j·n/k as quotient and remainder, so no product overflows.
class Strata {
 public:
  Strata(std::uint64_t seed, std::size_t elements, std::size_t kept)
      : seed_(seed), kept_(kept), size_(elements / kept), rest_(elements % kept) {}

  std::size_t next() {
    const std::size_t begin = begin_;
    remainder_ += rest_;
    const std::size_t carry = remainder_ >= kept_ ? 1 : 0;
    remainder_ -= carry * kept_;
    const std::size_t size = size_ + carry;
    begin_ += size;
    // 32 random bits times the size: the probabilities differ by less than size/2³².
    return begin + ((random_bits(seed_, index_++) >> 32U) * size >> 32U);
  }

 private:
  std::uint64_t seed_;
  std::size_t kept_;
  std::size_t size_;
  std::size_t rest_;
  std::size_t remainder_ = 0;
  std::size_t begin_ = 0;
  std::uint64_t index_ = 0;
};

class RandomKArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    if (input.empty()) {
      return;
    }
    const std::span<const float> values = compensated(input, residual);
    const bool overflows = largest_magnitude(values) >= kInfinityBits;
    const std::uint64_t seed =
        random_bits(key.stream, static_cast<std::uint64_t>(key.first_element));
    store(output.data(), seed);
    const std::size_t kept = kept_of(values.size());
    Strata strata(seed, values.size(), kept);
    for (std::size_t k = 0; k < kept; ++k) {
      const std::size_t index = strata.next();
      store(output.data() + kSeedBytes + k * sizeof(float),
            overflows ? std::numeric_limits<float>::quiet_NaN() : values[index]);
      if (!residual.empty()) {
        residual[index] = 0;
      }
    }
    if (overflows) {
      drop_overflow(residual);
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    std::fill(output.begin(), output.end(), 0.0F);
    each_kept(encoded, output, [](float& to, float value) { to = value; });
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    each_kept(encoded, output, [](float& to, float value) { to += value; });
  }

 private:
  std::size_t kept_of(std::size_t elements) const {
    return static_cast<std::size_t>(
        kept_elements(descriptor(), static_cast<std::int64_t>(elements)));
  }

  template <typename Apply>
  void each_kept(std::span<const std::byte> encoded, std::span<float> output, Apply apply) const {
    if (output.empty()) {
      return;
    }
    const std::size_t kept = kept_of(output.size());
    Strata strata(load<std::uint64_t>(encoded.data()), output.size(), kept);
    for (std::size_t k = 0; k < kept; ++k) {
      apply(output[strata.next()], load<float>(encoded.data() + kSeedBytes + k * sizeof(float)));
    }
  }
};

class RandomKFormat final : public CodecFormat {
 public:
  using CodecFormat::CodecFormat;

  Bytes encoded_size(const Codec& codec, std::int64_t elements) const override {
    return Bytes(kSeedBytes) + Bytes(kept_elements(codec, elements)) * 4;
  }
  /// Of any gradient, whatever its distribution, the share 1 − density of the energy is left out.
  double relative_error(const Codec& codec) const override { return std::sqrt(1 - codec.density); }
  /// Beside the feedback, each entry touches a sector of 32 bytes; as for top-k, a plain decode
  /// clears its output first.
  CodecTraffic traffic(const Codec& codec) const override {
    return {.encode = kFeedbackTraffic + codec.density * (4 + 2 * 32),
            .decode_add = codec.density * (4 + 2 * 32) + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    return std::make_unique<RandomKArithmetic>(codec);
  }
};

}  // namespace

const CodecFormat& random_k_format() {
  static const RandomKFormat kFormat(
      {.name = "randomk",
       .parameters = {{.name = "density", .field = &Codec::density, .above = 0, .most = 1}},
       .has_error_feedback = true});
  return kFormat;
}

}  // namespace rackrail::plan
