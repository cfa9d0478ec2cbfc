#include "plan/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace rackrail::plan {
namespace {

constexpr std::uint32_t kLargestBlock = 1U << 20U;
constexpr std::string_view kExpected =
    "none, fp16, int8, int8:block=<1..1048576>, topk or topk:density=<above 0, up to 1>";

/// Upper tail of the standard normal distribution.
double normal_tail(double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); }

double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

/// E[max |z|²] of `count` independent standard normal numbers: ∫ 2x·(1 − P(|z| < x)^count) dx by
/// Simpson's rule. The integrand is below 1e-20 past x = 12 for every block size that is allowed.
double expected_squared_maximum(std::uint32_t count) {
  constexpr int kIntervals = 480;
  constexpr double kEnd = 12;
  constexpr double kStep = kEnd / kIntervals;
  const auto integrand = [count](double x) {
    // 1 − (1 − tail)^count without loss of digits where the tail is small.
    return -2 * x * std::expm1(count * std::log1p(-2 * normal_tail(x)));
  };
  double sum = integrand(kEnd);  // The integrand is 0 at x = 0, where the logarithm has no value.
  for (int i = 1; i < kIntervals; ++i) {
    sum += (i % 2 == 1 ? 4 : 2) * integrand(i * kStep);
  }
  return sum * kStep / 3;
}

double fp16_error() {
  // Half a unit in the last place is 2⁻¹¹ of the power of two below the number; a magnitude that
  // is spread evenly over an octave on a logarithmic scale has a mean of m⁻² of 3/(8·ln 2).
  return 0x1.0p-11 / std::sqrt(3.0) * std::sqrt(3 / (8 * std::numbers::ln2));
}

double int8_error(std::uint32_t block) {
  // Stochastic rounding of a fraction f has variance f(1 − f), 1/6 on average; the largest element
  // of a block lands on a code exactly.
  const double others = 1 - 1.0 / block;
  return std::sqrt(expected_squared_maximum(block) * others / 6) / 127;
}

double top_k_error(double density) {
  if (density >= 1) {
    return 0;
  }
  // Magnitudes above t are kept, where 2·tail(t) = density; they hold 2(t·φ(t) + tail(t)) of the
  // energy.
  double low = 0;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (2 * normal_tail(middle) > density ? low : high) = middle;
  }
  const double kept = density + 2 * low * normal_density(low);
  return std::sqrt(std::max(0.0, 1 - kept));
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

[[noreturn]] void reject(std::string_view text) {
  throw ConfigError(ErrorContext{.file = {},
                                 .where = "codec",
                                 .found = fmt::format("'{}'", text),
                                 .expected = std::string(kExpected)});
}

}  // namespace

bool Codec::operator==(const Codec& other) const {
  if (kind != other.kind) {
    return false;
  }
  switch (kind) {
    case CodecKind::kNone:
    case CodecKind::kFp16:
      return true;
    case CodecKind::kInt8Block:
      return block == other.block;
    case CodecKind::kTopK:
      return density == other.density;
  }
  return false;
}

std::int64_t kept_elements(const Codec& codec, std::int64_t elements) {
  if (elements <= 0) {
    return 0;
  }
  const double exact = codec.density * static_cast<double>(elements);
  // 0.07 · 100 is a little above 7 in binary; nobody who writes 0.07 means 8 of 100.
  const double nearest = std::round(exact);
  const double kept =
      std::abs(exact - nearest) <= 1e-9 * std::max(1.0, exact) ? nearest : std::ceil(exact);
  return std::clamp(static_cast<std::int64_t>(kept), std::int64_t{1}, elements);
}

Bytes encoded_size(const Codec& codec, std::int64_t elements) {
  if (elements <= 0) {
    return Bytes(0);
  }
  switch (codec.kind) {
    case CodecKind::kNone:
      return Bytes(elements) * 4;
    case CodecKind::kFp16:
      return Bytes(elements) * 2;
    case CodecKind::kInt8Block: {
      const std::int64_t block = codec.block;
      const std::int64_t blocks = elements / block + (elements % block != 0 ? 1 : 0);
      return Bytes(elements) + Bytes(blocks) * 4;
    }
    case CodecKind::kTopK:
      return Bytes(kept_elements(codec, elements)) * 8;
  }
  return Bytes(0);
}

double relative_error(const Codec& codec) {
  switch (codec.kind) {
    case CodecKind::kNone:
      return 0;
    case CodecKind::kFp16:
      return fp16_error();
    case CodecKind::kInt8Block:
      return int8_error(codec.block);
    case CodecKind::kTopK:
      return top_k_error(codec.density);
  }
  return 0;
}

std::string to_string(const Codec& codec) {
  const Codec defaults;
  switch (codec.kind) {
    case CodecKind::kNone:
      return "none";
    case CodecKind::kFp16:
      return "fp16";
    case CodecKind::kInt8Block:
      return codec.block == defaults.block ? "int8" : fmt::format("int8:block={}", codec.block);
    case CodecKind::kTopK:
      return codec.density == defaults.density ? "topk"
                                               : fmt::format("topk:density={}", codec.density);
  }
  return "none";
}

Codec parse_codec(std::string_view text) {
  constexpr std::string_view kInt8Prefix = "int8:block=";
  constexpr std::string_view kTopKPrefix = "topk:density=";
  Codec codec;
  if (text == "none") {
    return codec;
  }
  if (text == "fp16") {
    codec.kind = CodecKind::kFp16;
    return codec;
  }
  if (text == "int8" || text.starts_with(kInt8Prefix)) {
    codec.kind = CodecKind::kInt8Block;
    if (text != "int8") {
      const auto block = parse_number<std::uint32_t>(text.substr(kInt8Prefix.size()));
      if (!block || *block < 1 || *block > kLargestBlock) {
        reject(text);
      }
      codec.block = *block;
    }
    return codec;
  }
  if (text == "topk" || text.starts_with(kTopKPrefix)) {
    codec.kind = CodecKind::kTopK;
    if (text != "topk") {
      const auto density = parse_number<double>(text.substr(kTopKPrefix.size()));
      if (!density || !(*density > 0 && *density <= 1)) {
        reject(text);
      }
      codec.density = *density;
    }
    return codec;
  }
  reject(text);
}

std::span<const Codec> known_codecs() {
  static const std::array<Codec, 4> kCodecs{
      Codec{.kind = CodecKind::kNone}, Codec{.kind = CodecKind::kFp16},
      Codec{.kind = CodecKind::kInt8Block}, Codec{.kind = CodecKind::kTopK}};
  return kCodecs;
}

}  // namespace rackrail::plan
