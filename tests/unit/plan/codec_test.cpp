#include "plan/codec.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace rackrail::plan {
namespace {

Codec int8(std::uint32_t block) { return {.kind = CodecKind::kInt8Block, .block = block}; }
Codec top_k(double density) { return {.kind = CodecKind::kTopK, .density = density}; }
const Codec kFp16Codec{.kind = CodecKind::kFp16};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) {
    sum += v * v;
  }
  return std::sqrt(sum);
}

std::vector<double> normal_values(std::size_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(count);
  for (double& v : values) {
    v = normal(random);
  }
  return values;
}

TEST_CASE("encoded sizes follow the wire formats") {
  CHECK(encoded_size(Codec{}, 1000) == Bytes(4000));
  CHECK(encoded_size(kFp16Codec, 1001) == Bytes(2002));
  CHECK(encoded_size(int8(256), 256) == Bytes(260));
  CHECK(encoded_size(int8(256), 257) == Bytes(257 + 8));
  CHECK(encoded_size(int8(1), 3) == Bytes(15));
  CHECK(encoded_size(top_k(0.01), 1000) == Bytes(80));
  CHECK(encoded_size(top_k(0.01), 1) == Bytes(8));
  for (const Codec& codec : known_codecs()) {
    CHECK(encoded_size(codec, 0) == Bytes(0));
  }
}

TEST_CASE("top-k keeps the stated share, at least one element and at most all") {
  CHECK(kept_elements(top_k(0.01), 0) == 0);
  CHECK(kept_elements(top_k(0.01), 1) == 1);
  CHECK(kept_elements(top_k(0.01), 100) == 1);
  CHECK(kept_elements(top_k(0.01), 101) == 2);
  CHECK(kept_elements(top_k(1), 7) == 7);
  // 0.07 · 100 and 0.07 · 300 round to above 7 and below 21 in binary.
  CHECK(kept_elements(top_k(0.07), 100) == 7);
  CHECK(kept_elements(top_k(0.07), 300) == 21);
}

TEST_CASE("codecs are equal when they produce the same bytes") {
  CHECK(Codec{.kind = CodecKind::kFp16, .block = 1} == Codec{.kind = CodecKind::kFp16, .block = 2});
  CHECK_FALSE(int8(128) == int8(256));
  CHECK(Codec{.kind = CodecKind::kInt8Block, .density = 0.5} == int8(256));
  CHECK_FALSE(top_k(0.1) == top_k(0.2));
  CHECK_FALSE(int8(256) == kFp16Codec);
}

TEST_CASE("codecs read back from their text") {
  for (const Codec& codec : {Codec{}, kFp16Codec, int8(256), int8(128), int8(1), top_k(0.01),
                             top_k(0.001), top_k(1), top_k(1.0 / 3)}) {
    CAPTURE(to_string(codec));
    CHECK(parse_codec(to_string(codec)) == codec);
  }
  CHECK(to_string(int8(128)) == "int8:block=128");
  CHECK(to_string(top_k(0.001)) == "topk:density=0.001");
}

TEST_CASE("a codec that does not exist is refused with what does") {
  for (const char* text :
       {"", "fp8", "int8:", "int8:block=", "int8:block=0", "int8:block=-1", "int8:block=2000000",
        "int8:block=12x", "int8:density=1", "topk:density=0", "topk:density=1.5",
        "topk:density=nan", "topk:density=inf", " none"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_codec(text), ConfigError);
  }
  CHECK_THROWS_WITH(parse_codec("fp8"), Catch::Contains("'fp8'") && Catch::Contains("fp16"));
}

TEST_CASE("the error of FP16 is that of rounding to 11 bits") {
  const std::uint64_t seed = 7;
  INFO("seed " << seed);
  double sum = 0;
  constexpr int kScales = 16;
  for (int i = 0; i < kScales; ++i) {
    // Deviations over an octave: the error depends on where they lie between powers of two.
    const auto values = normal_values(1 << 14, std::exp2(static_cast<double>(i) / kScales), seed);
    std::vector<double> error;
    for (const double v : values) {
      int exponent = 0;
      std::frexp(v, &exponent);
      const double unit = std::ldexp(1.0, exponent - 11);
      error.push_back(std::nearbyint(v / unit) * unit - v);
    }
    sum += std::pow(norm(error) / norm(values), 2);
  }
  CHECK(relative_error(kFp16Codec) == Approx(std::sqrt(sum / kScales)).epsilon(0.01));
  CHECK(relative_error(kFp16Codec) == Approx(2.1e-4).epsilon(0.02));
}

TEST_CASE("the error of 8-bit blocks is that of stochastic rounding to max/127") {
  const std::uint64_t seed = 11;
  for (const std::uint32_t block : {4U, 32U, 256U, 2048U}) {
    CAPTURE(seed, block);
    const auto values = normal_values(1 << 18, 1, seed + block);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<double> error;
    for (std::size_t begin = 0; begin < values.size(); begin += block) {
      double largest = 0;
      for (std::size_t i = begin; i < begin + block; ++i) {
        largest = std::max(largest, std::abs(values[i]));
      }
      const double step = largest / 127;
      for (std::size_t i = begin; i < begin + block; ++i) {
        // The largest element is a whole number of steps by definition, whatever the division says.
        const double steps =
            std::abs(values[i]) == largest ? std::copysign(127, values[i]) : values[i] / step;
        error.push_back(std::floor(steps + uniform(random)) * step - values[i]);
      }
    }
    CHECK(relative_error(int8(block)) == Approx(norm(error) / norm(values)).epsilon(0.01));
  }
  CHECK(relative_error(int8(1)) == Approx(0).margin(1e-12));
}

TEST_CASE("the error of top-k is the energy that it leaves out") {
  const std::uint64_t seed = 13;
  INFO("seed " << seed);
  auto values = normal_values(1 << 18, 1, seed);
  std::sort(values.begin(), values.end(),
            [](double a, double b) { return std::abs(a) > std::abs(b); });
  for (const double density : {0.001, 0.01, 0.1, 0.5}) {
    CAPTURE(density);
    const auto kept = static_cast<std::ptrdiff_t>(density * static_cast<double>(values.size()));
    const std::vector<double> rest(values.begin() + kept, values.end());
    CHECK(relative_error(top_k(density)) == Approx(norm(rest) / norm(values)).epsilon(0.01));
  }
  CHECK(relative_error(top_k(1)) == 0);
  CHECK(relative_error(Codec{}) == 0);
}

TEST_CASE("every kind of codec is known once and reads by its short name") {
  std::set<CodecKind> kinds;
  for (const Codec& codec : known_codecs()) {
    kinds.insert(codec.kind);
    CHECK(to_string(codec).find(':') == std::string::npos);
  }
  CHECK(kinds.size() == 4);
  CHECK(known_codecs().front().kind == CodecKind::kNone);
}

}  // namespace
}  // namespace rackrail::plan
