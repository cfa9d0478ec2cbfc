// The arithmetic of codecs of 8-bit codes with one FP32 scale per block (block_scaled.hpp).

// Once for each instruction set.
#if defined(RACKRAIL_PLAN_CODECS_BLOCK_SCALED_LOOPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef RACKRAIL_PLAN_CODECS_BLOCK_SCALED_LOOPS_HPP
#undef RACKRAIL_PLAN_CODECS_BLOCK_SCALED_LOOPS_HPP
#else
#define RACKRAIL_PLAN_CODECS_BLOCK_SCALED_LOOPS_HPP
#endif

#include <limits>

#include "plan/codecs/cpu_arithmetic.hpp"
#include "plan/codecs/vectors.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {

/// Codes of elements, as many as a vector of tag D has.
template <class D>
using ByteCodes = hn::Rebind<std::int8_t, D>;

/// A block to encode.
struct Block {
  const float* values;
  std::size_t size;
  float scale;
  std::uint64_t stream;  ///< of random numbers
  std::uint64_t first;   ///< index in the bucket of values[0]
};

/// `Code` has
///   float scale(float largest): positive, or 0 for a block that is too small for a scale;
///   encode(Block, put), which calls put(tag, i, values, codes) for all elements, with the codes as
///     signed integers of 32 bits, which are narrowed to 8 with saturation;
///   loops Vec<D> floats_of(D, Vec<ByteCodes<D>>), what codes stand for, without the scale, and
///     finite_floats_of, the same for those that encode makes.
template <class Code>
class BlockScaledArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    const std::size_t count = input.size();
    const float* from = input.data();
    float* errors = residual.empty() ? nullptr : residual.data();
    std::byte* scales = output.data();
    std::byte* codes = output.data() + scale_bytes(count);
    for (std::size_t begin = 0; begin < count; begin += block()) {
      Block work{.values = from + begin,
                 .size = size_of_block(begin, count),
                 .stream = key.stream,
                 .first = static_cast<std::uint64_t>(key.first_element) + begin};
      fetch(from, begin, work.size, count);
      if (errors == nullptr) {
        work.scale = scale_of(largest(work));
        encode_block(work, nullptr, codes + begin);
      } else {
        fetch(errors, begin, work.size, count);
        work.scale = scale_of(compensate(work, errors + begin));
        work.values = errors + begin;
        encode_block(work, errors + begin, codes + begin);
      }
      store(scales, work.scale);
      scales += sizeof work.scale;
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    each_block(encoded, output,
               [](auto d, auto values, float* to) HWY_ATTR { hn::StoreU(values, d, to); });
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    each_block(encoded, output, [](auto d, auto values, float* to) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, to), values), d, to);
    });
  }

 private:
  // A block is gone through twice, and the second time nothing would come from memory: the
  // processor looks ahead in one run through the data, not from block to block.
  static void fetch(const float* values, std::size_t begin, std::size_t size, std::size_t count) {
    constexpr std::size_t kAhead = 1024;  // elements
    constexpr std::size_t kLine = 64 / sizeof(float);
    const std::size_t end = begin + kAhead + (size < kAhead ? size : kAhead);
    for (std::size_t i = begin + kAhead; i < (end < count ? end : count); i += kLine) {
      __builtin_prefetch(values + i);
    }
  }

  std::size_t block() const { return descriptor().block; }
  std::size_t size_of_block(std::size_t begin, std::size_t count) const {
    return count - begin < block() ? count - begin : block();
  }
  std::size_t scale_bytes(std::size_t elements) const {
    return (elements + block() - 1) / block() * sizeof(float);
  }
  static float scale_of(std::uint32_t largest_magnitude) {
    return largest_magnitude >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN()
                                              : Code::scale(bits_as<float>(largest_magnitude));
  }

  static std::uint32_t largest(const Block& block) {
    const float* from = block.values;
    return largest_magnitude_of(
        block.size, [=](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, from + i); });
  }

  /// errors += block, and their largest magnitude.
  static std::uint32_t compensate(const Block& block, float* errors) {
    const float* from = block.values;
    return largest_magnitude_of(block.size, [=](auto d, std::size_t i) HWY_ATTR {
      const auto sum = hn::Add(hn::LoadU(d, errors + i), hn::LoadU(d, from + i));
      hn::StoreU(sum, d, errors + i);
      return sum;
    });
  }

  /// With errors, which then are the block's values: leaves there what the codes do not say.
  static void encode_block(const Block& block, float* errors, std::byte* codes) {
    const float scale = block.scale;
    if (!(scale > 0)) {
      __builtin_memset(codes, 0, block.size);
      if (scale != scale && errors != nullptr) {
        // One overflow must not stay in the feedback of all later steps.
        __builtin_memset(errors, 0, block.size * sizeof(float));
      }
    } else if (errors == nullptr) {
      Code::encode(block, [=](auto d, std::size_t i, auto /*values*/, auto found) HWY_ATTR {
        const ByteCodes<decltype(d)> narrow;
        store_vector(hn::DemoteTo(narrow, found), narrow, codes + i);
      });
    } else {
      Code::encode(block, [=](auto d, std::size_t i, auto values, auto found) HWY_ATTR {
        const ByteCodes<decltype(d)> narrow;
        const auto sent = hn::DemoteTo(narrow, found);
        store_vector(sent, narrow, codes + i);
        const auto decoded = hn::Mul(Code::finite_floats_of(d, sent), hn::Set(d, scale));
        hn::StoreU(hn::Sub(values, decoded), d, errors + i);
      });
    }
  }

  /// put(tag, decoded values, where they belong) for all elements.
  template <class Put>
  void each_block(std::span<const std::byte> encoded, std::span<float> output, Put put) const {
    check_encoded_size(encoded, output.size());
    const std::size_t count = output.size();
    float* to = output.data();
    const std::byte* scales = encoded.data();
    const std::byte* codes = encoded.data() + scale_bytes(count);
    for (std::size_t begin = 0; begin < count; begin += block()) {
      const auto scale = load<float>(scales);
      scales += sizeof scale;
      each_vector(Floats(), size_of_block(begin, count), [=](auto d, std::size_t i) HWY_ATTR {
        const auto found = load_vector(ByteCodes<decltype(d)>(), codes + begin + i);
        put(d, hn::Mul(Code::floats_of(d, found), hn::Set(d, scale)), to + begin + i);
      });
    }
  }
};

}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
