// The arithmetic of codecs that round each element by itself to 16 bits (rounding.hpp).

// Once for each instruction set.
#if defined(RACKRAIL_PLAN_CODECS_ROUNDING_LOOPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef RACKRAIL_PLAN_CODECS_ROUNDING_LOOPS_HPP
#undef RACKRAIL_PLAN_CODECS_ROUNDING_LOOPS_HPP
#else
#define RACKRAIL_PLAN_CODECS_ROUNDING_LOOPS_HPP
#endif

#include "plan/codecs/cpu_arithmetic.hpp"
#include "plan/codecs/vectors.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {

/// Codes of elements, as many as a vector of tag D has.
template <class D>
using Codes = hn::Rebind<std::uint16_t, D>;

/// `Narrow` has the loops
///   Vec<Codes<D>> codes_of(D, Vec<D> values) and
///   Vec<D> floats_of(D, Vec<Codes<D>> codes).
template <class Narrow>
class RoundingArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey /*key*/,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    if (residual.empty()) {
      encode_all(input.data(), output.data(), input.size());
    } else {
      encode_with_feedback(input.data(), residual.data(), output.data(), input.size());
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    const std::byte* from = encoded.data();
    float* to = output.data();
    each_vector(StreamedFloats(), output.size(), [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(decoded(d, from, i), d, to + i);
    });
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    check_encoded_size(encoded, output.size());
    const std::byte* from = encoded.data();
    float* to = output.data();
    each_vector(StreamedFloats(), output.size(), [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), decoded(d, from, i)), d, to + i);
    });
  }

 private:
  static void encode_all(const float* from, std::byte* to, std::size_t count) {
    each_vector(StreamedFloats(), count, [=](auto d, std::size_t i) HWY_ATTR {
      store_vector(Narrow::codes_of(d, hn::LoadU(d, from + i)), Codes<decltype(d)>(), to + 2 * i);
    });
  }

  static void encode_with_feedback(const float* from, float* residual, std::byte* to,
                                   std::size_t count) {
    each_vector(StreamedFloats(), count, [=](auto d, std::size_t i) HWY_ATTR {
      const auto value = hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, from + i));
      const auto codes = Narrow::codes_of(d, value);
      store_vector(codes, Codes<decltype(d)>(), to + 2 * i);
      // Infinite where the value is beyond the format: what cannot be sent later is not kept.
      const auto error = finite_or_zero(hn::Sub(value, Narrow::floats_of(d, codes)));
      hn::StoreU(error, d, residual + i);
    });
  }

  template <class D>
  HWY_INLINE static hn::Vec<D> decoded(D d, const std::byte* from, std::size_t i) {
    return Narrow::floats_of(d, load_vector(Codes<D>(), from + 2 * i));
  }
};

}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
