// Codecs of 8-bit floating point with one FP32 scale per block; laid out as block_scaled.hpp says.
// Their loops are in float8_loops.hpp.
//
// A block with largest magnitude m has the scale s = m/L, L being the format's largest number,
// rounded towards zero to 20 significant bits, and x becomes the code nearest to x/s, ties to even.
// Nearest and not stochastic: it has half the variance, it is what the conversion instructions of
// GPUs do, and the error is fed back anyway, which makes up for the bias.
//
// Encoding what was decoded gives the same bytes: a code has at most 4 significant bits, so code ·
// s fits into FP32's 24 and is exact. m/s lies at most 2⁻¹⁹ (relative) above L and is rounded to
// it, so what is decoded has the largest magnitude L·s, hence the same scale and the same codes.
// Blocks so small that products would lose bits have the scale 0; the limit is L times a power of
// two, so that what is decoded does not fall below it.
//
// The formats are those of the OCP 8-bit floating point specification (OFP8, revision 1.0, 2023).
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "plan/codecs/block_scaled.hpp"
#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"

namespace rackrail::plan {

/// The format of such a codec. `Numbers` says what its codes are: kMantissaBits, kBias, the largest
/// number kLargest in [2^kLargestOctave, 2^(kLargestOctave + 1)) and its code kLargestCode, whether
/// the code above that is infinity (kHasInfinity), and kSmallestBlock: no product of a code and a
/// scale of blocks from there on loses bits.
template <typename Numbers>
class Float8Format final : public CodecFormat {
 public:
  using Maker = std::unique_ptr<CodecArithmetic> (*)(const Codec& codec);

  Float8Format(CodecTraits traits, Maker maker) : CodecFormat(std::move(traits)), maker_(maker) {}

  Bytes encoded_size(const Codec& codec, std::int64_t elements) const override {
    return block_scaled_size(codec.block, elements);
  }
  /// The mean of squared_error_below over the distribution of the block's largest magnitude, which
  /// is itself exact.
  double relative_error(const Codec& codec) const override {
    constexpr double kEnd = 9;  // a block of 2²⁰ exceeds it with a probability of 3e-13
    constexpr int kIntervals = 180;
    double sum = 0;
    double reached = 0;
    for (int i = 1; i <= kIntervals; ++i) {
      const double next = normal_maximum_below(codec.block, kEnd * i / kIntervals);
      if (next > reached) {
        sum += (next - reached) * squared_error_below(kEnd * (i - 0.5) / kIntervals);
      }
      reached = next;
    }
    return std::sqrt(sum * (1 - 1.0 / codec.block));
  }
  CodecTraffic traffic(const Codec& /*codec*/) const override {
    return {.encode = kFeedbackTraffic + 1, .decode_add = 1 + 4 + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    return maker_(codec);
  }

 private:
  /// E[error²] of a standard normal number that is known to be below `largest`, the largest of its
  /// block: a unit u in the last place costs u²/12.
  static double squared_error_below(double largest) {
    constexpr int kSmallestOctave = 1 - Numbers::kBias;
    const double scale = largest / Numbers::kLargest;
    const auto below = [&](double x) { return 1 - 2 * normal_tail(std::min(x * scale, largest)); };
    const auto squared_unit = [&](int octave) {
      const double unit = std::ldexp(scale, octave - Numbers::kMantissaBits);
      return unit * unit / 12;
    };
    double sum = below(std::ldexp(1.0, kSmallestOctave)) * squared_unit(kSmallestOctave);
    for (int octave = kSmallestOctave; octave <= Numbers::kLargestOctave; ++octave) {
      const double begin = std::ldexp(1.0, octave);
      sum += (below(2 * begin) - below(begin)) * squared_unit(octave);
    }
    return sum / below(Numbers::kLargest);
  }

  Maker maker_;
};

}  // namespace rackrail::plan
