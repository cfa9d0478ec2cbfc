// The elements of largest magnitude, exactly; of equal ones those with the lower index.
//
// Layout of k kept elements: k indices (unsigned 32 bits, ascending), then k values (FP32).
//
// Selection. Magnitudes order like the integers of their bits, so the k-th largest is found digit
// by digit: a histogram of the upper 11 bits says which digit it has and how many are above; the
// elements with that digit are counted again by the next 10 bits, then by the last 10. Three passes
// in linear time whatever the data is. Not-a-number counts as larger than infinity, so it is sent
// on.
//
// Where few of many elements are kept, the three passes look only at those above a threshold that a
// sample suggests, three standard deviations below the one that is wanted. If the sample misled,
// there are too few of them or too many, and the passes look at all: slower, with the same result.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "plan/codecs/cpu_arithmetic.hpp"
#include "plan/codecs/error_models.hpp"
#include "plan/codecs/format.hpp"
#include "plan/codecs/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/codecs/top_k.cpp"
#include <hwy/foreach_target.h>

#include "plan/codecs/vectors.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {
namespace {

/// Where the values of at least a magnitude stand, and how many they are. `places` has room for all
/// and for one vector more.
std::size_t collect(const float* values, std::size_t count, std::uint32_t least,
                    std::uint32_t* places) {
  std::size_t found = 0;
  each_vector(StreamedFloats(), count, [&](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const auto magnitudes = hn::BitCast(di, hn::Abs(hn::LoadU(d, values + i)));
    const auto is_kept = hn::Gt(magnitudes, hn::Set(di, static_cast<std::int32_t>(least) - 1));
    // Compressed and then stored: an instruction that does both is slow on some processors.
    const auto mask = hn::RebindMask(du, is_kept);
    const auto all = hn::Add(hn::Iota(du, 0), hn::Set(du, static_cast<std::uint32_t>(i)));
    hn::StoreU(hn::Compress(all, mask), du, places + found);
    found += hn::CountTrue(du, mask);
  });
  return found;
}

}  // namespace
}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rackrail::plan {

HWY_EXPORT(collect);

namespace {

std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }

struct Threshold {
  std::uint32_t magnitude = 0;  ///< of the k-th largest element
  std::size_t ties = 0;         ///< elements of just that magnitude to keep
};

Threshold find_threshold(std::span<const float> values, std::size_t kept) {
  constexpr std::array<std::uint32_t, 3> kShifts{20, 10, 0};
  constexpr std::array<std::uint32_t, 3> kWidths{11, 10, 10};
  std::uint32_t prefix = 0;
  std::size_t wanted = kept;  // rank of the element among those with the prefix, from 1
  for (std::size_t pass = 0; pass < kShifts.size(); ++pass) {
    std::array<std::uint32_t, 2048> counts{};
    const std::uint32_t digit_mask = (1U << kWidths[pass]) - 1;
    const std::uint32_t above = kShifts[pass] + kWidths[pass];
    for (const float value : values) {
      const std::uint32_t bits = magnitude(value);
      if (bits >> above == prefix) {
        ++counts[(bits >> kShifts[pass]) & digit_mask];
      }
    }
    std::uint32_t digit = digit_mask;
    while (counts[digit] < wanted) {
      wanted -= counts[digit];
      --digit;
    }
    prefix = prefix << kWidths[pass] | digit;
  }
  return {.magnitude = prefix, .ties = wanted};
}

/// What may be among the kept: elements and, with all others left out, where they stand.
struct Contenders {
  std::vector<std::uint32_t> indices;  ///< ascending
  std::vector<float> values;
};

constexpr std::size_t kFewestSampled = 1024;
constexpr std::size_t kStride = 61;  // no power of two: rows of tensors often are
constexpr std::size_t kPiece = 4096;
constexpr std::size_t kMostLanes = 8;

/// At least `kept` elements and all of their magnitudes or larger; none if a sample does not help.
std::optional<Contenders> contenders(std::span<const float> values, std::size_t kept) {
  if (values.size() < kStride * kFewestSampled || kept > values.size() / 8) {
    return std::nullopt;
  }
  std::vector<float> sample;
  sample.reserve(values.size() / kStride + 1);
  for (std::size_t i = 0; i < values.size(); i += kStride) {
    sample.push_back(values[i]);
  }
  const double expected = static_cast<double>(kept) * static_cast<double>(sample.size()) /
                          static_cast<double>(values.size());
  const auto rank = static_cast<std::size_t>(expected + 3 * std::sqrt(expected) + 3);
  const std::uint32_t least = find_threshold(sample, std::min(rank, sample.size())).magnitude;
  const std::size_t most = 4 * kStride * rank;

  Contenders found;
  std::array<std::uint32_t, kPiece + kMostLanes> places;
  for (std::size_t begin = 0; begin < values.size(); begin += kPiece) {
    const std::size_t size = std::min(kPiece, values.size() - begin);
    const std::size_t count =
        HWY_DYNAMIC_DISPATCH(collect)(values.data() + begin, size, least, places.data());
    if (found.indices.size() + count > most) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < count; ++i) {
      found.indices.push_back(static_cast<std::uint32_t>(begin + places[i]));
      found.values.push_back(values[begin + places[i]]);
    }
  }
  if (found.indices.size() < kept) {
    return std::nullopt;
  }
  return found;
}

class TopKArithmetic final : public CpuArithmetic {
 public:
  using CpuArithmetic::CpuArithmetic;

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey /*key*/,
              std::span<std::byte> output) const override {
    check_encode_buffers(input, residual, output);
    if (input.empty()) {
      return;
    }
    const std::span<const float> values = compensated(input, residual);
    const std::size_t kept = kept_elements(values.size());
    const std::optional<Contenders> few = contenders(values, kept);
    const std::span<const float> candidates = few ? std::span<const float>(few->values) : values;
    const Threshold threshold = find_threshold(candidates, kept);
    std::size_t ties = threshold.ties;
    std::byte* indices = output.data();
    std::byte* kept_values = output.data() + kept * sizeof(std::uint32_t);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const float value = candidates[i];
      const std::uint32_t size = magnitude(value);
      if (size < threshold.magnitude) {
        continue;
      }
      if (size == threshold.magnitude) {
        if (ties == 0) {
          continue;
        }
        --ties;
      }
      const auto index = few ? few->indices[i] : static_cast<std::uint32_t>(i);
      if (!residual.empty()) {
        residual[index] = 0;  // which is candidates[i], unless there are few
      }
      std::memcpy(indices, &index, sizeof index);
      std::memcpy(kept_values, &value, sizeof value);
      indices += sizeof index;
      kept_values += sizeof(float);
    }
    if (threshold.magnitude >= kInfinityBits) {
      drop_overflow(residual);  // there may be more of it than could be sent
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    const std::size_t kept = check(encoded, output.size());
    std::fill(output.begin(), output.end(), 0.0F);
    for (std::size_t k = 0; k < kept; ++k) {
      output[index_at(encoded, k)] = value_at(encoded, kept, k);
    }
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    const std::size_t kept = check(encoded, output.size());
    for (std::size_t k = 0; k < kept; ++k) {
      output[index_at(encoded, k)] += value_at(encoded, kept, k);
    }
  }

 private:
  std::size_t kept_elements(std::size_t elements) const {
    return static_cast<std::size_t>(
        rackrail::plan::kept_elements(descriptor(), static_cast<std::int64_t>(elements)));
  }

  static std::uint32_t index_at(std::span<const std::byte> encoded, std::size_t k) {
    std::uint32_t index = 0;
    std::memcpy(&index, encoded.data() + k * sizeof index, sizeof index);
    return index;
  }

  static float value_at(std::span<const std::byte> encoded, std::size_t kept, std::size_t k) {
    float value = 0;
    std::memcpy(&value, encoded.data() + (kept + k) * sizeof value, sizeof value);
    return value;
  }

  /// Everything is looked at before anything is written. Returns the number of elements kept.
  std::size_t check(std::span<const std::byte> encoded, std::size_t elements) const {
    check_encoded_size(encoded, elements);
    const std::size_t kept = kept_elements(elements);
    std::uint64_t lowest = 0;
    for (std::size_t k = 0; k < kept; ++k) {
      const std::uint32_t index = index_at(encoded, k);
      if (index < lowest || index >= elements) {
        throw RuntimeFailure("codec " + to_string(descriptor()) + ": index " +
                             std::to_string(index) + " instead of an ascending one below " +
                             std::to_string(elements));
      }
      lowest = std::uint64_t{index} + 1;
    }
    return kept;
  }
};

class TopKFormat final : public CodecFormat {
 public:
  using CodecFormat::CodecFormat;

  Bytes encoded_size(const Codec& codec, std::int64_t elements) const override {
    return Bytes(kept_elements(codec, elements)) * 8;
  }
  /// √(1 − share of the energy that is kept).
  double relative_error(const Codec& codec) const override {
    if (codec.density >= 1) {
      return 0;
    }
    // Magnitudes above t are kept, where 2·tail(t) = density; they hold 2(t·φ(t) + tail(t)) of the
    // energy.
    double low = 0;
    double high = 40;
    for (int i = 0; i < 100; ++i) {
      const double middle = 0.5 * (low + high);
      (2 * normal_tail(middle) > codec.density ? low : high) = middle;
    }
    const double kept = codec.density + 2 * low * normal_density(low);
    return std::sqrt(std::max(0.0, 1 - kept));
  }
  /// Selection of the threshold by three radix passes over the corrected gradient, which is written
  /// once for them; the last pass compacts and clears what was sent from the residual. Decoding
  /// reads entries of 8 bytes, each of which reads and writes a sector of 32 bytes, and the FP32
  /// output that a plain decode clears first.
  CodecTraffic traffic(const Codec& codec) const override {
    return {.encode = kFeedbackTraffic + 3 * 4 + 8, .decode_add = codec.density * (8 + 2 * 32) + 4};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    return std::make_unique<TopKArithmetic>(codec);
  }
};

}  // namespace

const CodecFormat& top_k_format() {
  static const TopKFormat kFormat(
      {.name = "topk",
       .parameters = {{.name = "density", .field = &Codec::density, .above = 0, .most = 1}},
       .has_error_feedback = true,
       .is_default = true});
  return kFormat;
}

}  // namespace rackrail::plan
#endif
