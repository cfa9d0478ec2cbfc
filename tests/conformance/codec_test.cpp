// What every codec must do, whatever it is and wherever it runs: on the CPU and, where there is
// one, on a GPU. (Compiled once more with tests/support/emulated_gpu, the kernels run on the CPU.)
#include "runtime/codec.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/cuda/factory.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::codec_test {
namespace {

constexpr unsigned kSeed = 17;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A codec somewhere.
struct Subject {
  std::string name;
  bool on_gpu = false;

  std::unique_ptr<Codec> make() const {
    return on_gpu ? make_cuda_codec(plan::parse_codec(name)) : make_codec(plan::parse_codec(name));
  }
};

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  return out << subject.name << (subject.on_gpu ? " on a GPU" : " on the CPU");
}

/// The codec wherever there is one.
std::vector<Subject> everywhere(const std::string& name) {
  std::vector<Subject> subjects{{name, false}};
  if (!cuda_status().unavailable && has_cuda_codec(plan::parse_codec(name))) {
    subjects.push_back({name, true});
  }
  return subjects;
}

/// Every codec with its default parameters, and some with others, everywhere.
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> kSubjects = [] {
    std::vector<std::string> names{"int8:block=1",         "int8:block=100",    "int8:block=128",
                                   "int8:block=512",       "fp8:block=1",       "fp8:block=100",
                                   "fp8e5m2:block=100",    "topk:density=0.25", "topk:density=1",
                                   "randomk:density=0.25", "randomk:density=1"};
    for (const plan::Codec& codec : plan::all_codecs()) {
      names.push_back(plan::to_string(codec));
    }
    std::vector<Subject> all;
    for (const std::string& name : names) {
      for (const Subject& subject : everywhere(name)) {
        all.push_back(subject);
      }
    }
    return all;
  }();
  return kSubjects;
}

const std::vector<std::size_t> kSizes = {1, 2, 31, 255, 256, 257, 1023, 1024, 1025, 100'003};

using Floats = std::vector<float>;
using Encoded = std::vector<std::byte>;

Floats normal(std::size_t size, unsigned seed = kSeed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Floats values(size);
  std::generate(values.begin(), values.end(), [&] { return distribution(random); });
  return values;
}

Encoded encode(const Codec& codec, const Floats& input, EncodeKey key = {},
               std::span<float> residual = {}) {
  Encoded bytes(static_cast<std::size_t>(
      plan::encoded_size(codec.descriptor(), static_cast<std::int64_t>(input.size())).count()));
  codec.encode(input, residual, key, bytes);
  return bytes;
}

Floats decode(const Codec& codec, const Encoded& bytes, std::size_t size) {
  Floats output(size, -77.0F);  // what was there must not matter
  codec.decode(bytes, output);
  return output;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double relative_difference(const Floats& a, const Floats& b) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(error / norm);
}

TEST_CASE("codec: what is decoded is near what was encoded, as the error model says") {
  const Subject subject = GENERATE(from_range(subjects()));
  const auto codec = subject.make();
  CAPTURE(subject);
  const Floats input = normal(100'003);
  const Floats output = decode(*codec, encode(*codec, input), input.size());
  const double expected = plan::relative_error(codec->descriptor());
  // Scales of 17 bits may cost 2⁻¹⁶ more than the model of 8-bit blocks says.
  CHECK(relative_difference(output, input) == Approx(expected).epsilon(0.05).margin(0x1p-16));
  CHECK(same_bits(output, input) ==
        (subject.name == "none" ||
         subject.name.ends_with("k:density=1")));  // which keep all there is
}

TEST_CASE("codec: sizes, and none writes beyond them") {
  const Subject subject = GENERATE(from_range(subjects()));
  const auto codec = subject.make();
  for (const std::size_t size : kSizes) {
    CAPTURE(subject, size);
    const Floats input = normal(size);
    const Encoded bytes = encode(*codec, input);
    CHECK(decode(*codec, bytes, size).size() == size);
    Encoded longer = bytes;
    longer.push_back(std::byte{0});
    Floats output(size, 5.0F);
    CHECK_THROWS_AS(codec->decode(longer, output), RuntimeFailure);
    CHECK_THROWS_AS(codec->decode_add(longer, output), RuntimeFailure);
    CHECK_THROWS_AS(codec->decode(std::span(bytes).first(bytes.size() - 1), output),
                    RuntimeFailure);
    CHECK(output == Floats(size, 5.0F));
  }
  CHECK(encode(*codec, {}).empty());
}

/// Any floats there are, NaN and infinities among them.
Floats random_bits(std::size_t size) {
  std::mt19937 random(kSeed);
  Floats values(size);
  std::generate(values.begin(), values.end(),
                [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); });
  return values;
}

/// Numbers around and below the smallest ones of narrow formats, with many ties among them.
Floats small_and_even(std::size_t size) {
  Floats values = normal(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = std::ldexp(values[i], -static_cast<int>(i % 48));
    if (i % 2 == 0) {
      values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) & 0xfffff000U);
    }
  }
  return values;
}

/// What one instruction set makes of an input.
struct Outcome {
  Encoded bytes;
  Encoded with_feedback;
  Floats residual;
  Floats decoded;
  Floats sum;
};

Outcome outcome_of(const plan::Codec& descriptor, const Floats& input) {
  const auto codec = plan::make_codec_arithmetic(descriptor);
  Outcome found{.residual = normal(input.size(), kSeed + 2),
                .sum = normal(input.size(), kSeed + 3)};
  found.bytes = encode(*codec, input, {3, 1'000});
  found.with_feedback = encode(*codec, input, {3, 1'000}, found.residual);
  found.decoded = decode(*codec, found.bytes, input.size());
  codec->decode_add(found.with_feedback, found.sum);
  return found;
}

TEST_CASE("codec: all instruction sets give the same bytes and the same sums") {
  const Subject subject = GENERATE(from_range(subjects()));
  if (subject.on_gpu) {
    return;  // compared with the CPU below
  }
  const plan::Codec descriptor = plan::parse_codec(subject.name);
#if defined(__x86_64__)
  REQUIRE(test::instruction_sets().size() > 1);
#endif
  for (const std::size_t size : kSizes) {
    Floats input = normal(size);
    if (size > 300) {
      input[7] = 1e-41F;
      input[258] = kNan;
    }
    for (const Floats& values : {input, random_bits(size), small_and_even(size)}) {
      const Outcome best = outcome_of(descriptor, values);
      for (const std::int64_t set : test::instruction_sets()) {
        CAPTURE(subject, size, test::instruction_set_name(set));
        const test::UseInstructionSet use(set);
        const Outcome found = outcome_of(descriptor, values);
        CHECK(found.bytes == best.bytes);
        CHECK(found.with_feedback == best.with_feedback);
        CHECK(same_bits(found.residual, best.residual));
        CHECK(same_bits(found.decoded, best.decoded));
        CHECK(same_bits(found.sum, best.sum));
      }
    }
  }
}

TEST_CASE("codec: parameters outside their limits are refused") {
  for (const plan::Codec& codec : {plan::Codec{.kind = plan::CodecKind::kInt8Block, .block = 0},
                                   plan::Codec{.kind = plan::CodecKind::kFp8Block, .block = 0},
                                   plan::Codec{.kind = plan::CodecKind::kTopK, .density = 0},
                                   plan::Codec{.kind = plan::CodecKind::kRandomK, .density = 2}}) {
    CHECK_THROWS_AS(make_codec(codec), RuntimeFailure);
  }
}

TEST_CASE("codec: adding what is decoded is decoding and then adding") {
  const Subject subject = GENERATE(from_range(subjects()));
  const auto codec = subject.make();
  for (const std::size_t size : kSizes) {
    CAPTURE(subject, size);
    const Encoded bytes = encode(*codec, normal(size));
    const Floats decoded = decode(*codec, bytes, size);
    const Floats start = normal(size, kSeed + 1);
    Floats expected = start;
    std::transform(expected.begin(), expected.end(), decoded.begin(), expected.begin(),
                   [](float a, float b) { return a + b; });
    Floats sum = start;
    codec->decode_add(bytes, sum);
    CHECK(same_bits(sum, expected));
  }
}

TEST_CASE("codec: the key decides all that is random") {
  const Subject subject = GENERATE(from_range(subjects()));
  const auto codec = subject.make();
  CAPTURE(subject);
  const Floats input = normal(3'000);
  const Encoded first = encode(*codec, input, {1, 0});
  CHECK(encode(*codec, input, {1, 0}) == first);
  // Rounding to another format has nothing random about it.
  if (codec->descriptor().is_elementwise()) {
    CHECK(encode(*codec, input, {2, 0}) == first);
    CHECK(encode(*codec, input, {1, 4'096}) == first);
  }
}

TEST_CASE("codec: encoding what was decoded changes nothing") {
  const Subject subject = GENERATE(from_range(subjects()));
  const auto codec = subject.make();
  CAPTURE(subject);
  const Floats once = decode(*codec, encode(*codec, normal(5'000), {1, 0}), 5'000);
  CHECK(same_bits(decode(*codec, encode(*codec, once, {1, 0}), once.size()), once));
}

TEST_CASE("codec: … nor where blocks are nearly too small to have a scale", "[slow]") {
  const Subject subject = GENERATE(from_range(subjects()));
  const auto codec = subject.make();
  CAPTURE(subject);
  for (float size = 0x1p-90F; size > 0x1p-127F; size *= 0.83F) {
    CAPTURE(size);
    Floats input = normal(300);
    for (float& value : input) {
      value *= size;
    }
    const Floats once = decode(*codec, encode(*codec, input, {1, 0}), input.size());
    CHECK(same_bits(decode(*codec, encode(*codec, once, {1, 0}), once.size()), once));
  }
}

TEST_CASE("codec: 8-bit blocks round at random, but what was decoded not again") {
  const Subject subject = GENERATE(from_range(everywhere("int8")));
  CAPTURE(subject);
  const auto codec = subject.make();
  const Floats input = normal(5'000);
  const Encoded first = encode(*codec, input, {1, 0});
  CHECK(encode(*codec, input, {2, 0}) != first);
  CHECK(encode(*codec, input, {1, 4'096}) != first);
  const Floats once = decode(*codec, first, input.size());
  CHECK(encode(*codec, once, {2, 4'096}) == first);
}

TEST_CASE("codec: stochastic rounding is right on average") {
  const Subject subject = GENERATE(from_range(everywhere("int8")));
  CAPTURE(subject);
  const auto codec = subject.make();
  const Floats input = normal(256);
  const float largest = *std::max_element(
      input.begin(), input.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  constexpr int kRounds = 4'000;
  std::vector<double> sums(input.size(), 0.0);
  for (int round = 0; round < kRounds; ++round) {
    const Floats output =
        decode(*codec, encode(*codec, input, {static_cast<std::uint64_t>(round), 0}), 256);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += output[i];
    }
  }
  // One rounding varies by at most half a step; six standard errors of the mean of all rounds, and
  // what clipping to the last code may cost.
  const double step = std::abs(largest) / 127;
  const double allowed = 6 * 0.5 * step / std::sqrt(double{kRounds}) + 0.002 * step;
  double worst = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    worst = std::max(worst, std::abs(sums[i] / kRounds - input[i]));
  }
  CHECK(worst < allowed);
  CHECK(worst > 0);
}

TEST_CASE("codec: error feedback keeps what was not sent, and sends it later") {
  const std::size_t index = GENERATE(range(std::size_t{1}, plan::all_codecs().size()));
  plan::Codec descriptor = plan::all_codecs()[index];
  descriptor.density = 0.05;  // so that each element's turn comes within the steps below
  const Subject subject = GENERATE_COPY(from_range(everywhere(plan::to_string(descriptor))));
  const auto codec = subject.make();
  CAPTURE(subject);
  constexpr std::size_t kSize = 2'000;
  Floats residual(kSize, 0.0F);
  std::vector<double> sent(kSize, 0.0);
  std::vector<double> wanted(kSize, 0.0);
  const Floats gradient = normal(kSize);
  for (std::uint64_t step = 0; step < 200; ++step) {
    const Floats before = residual;
    const Floats output = decode(*codec, encode(*codec, gradient, {step, 0}, residual), kSize);
    float worst = 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      worst = std::max(worst, std::abs(gradient[i] + before[i] - (output[i] + residual[i])));
      sent[i] += output[i];
      wanted[i] += gradient[i];
    }
    CHECK(worst <= 1e-4F);  // rounding of FP32 sums up to a few hundred
  }
  // What is still missing is exactly what the residual holds, not something that grows.
  double missing = 0;
  double total = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    CHECK(wanted[i] - sent[i] == Approx(residual[i]).margin(0.02));
    missing += std::abs(wanted[i] - sent[i]);
    total += std::abs(wanted[i]);
  }
  CHECK(missing / total < (plan::relative_error(descriptor) > 0.5 ? 0.15 : 0.001));
}

TEST_CASE("codec: zeros, tiny and huge values, infinities and NaN") {
  for (const Subject& subject : subjects()) {
    const auto codec = subject.make();
    const plan::CodecKind kind = codec->descriptor().kind;
    CAPTURE(subject);
    const auto pass = [&](const Floats& input) {
      return decode(*codec, encode(*codec, input), input.size());
    };
    CHECK(pass(Floats(300, 0.0F)) == Floats(300, 0.0F));
    for (const float tiny : pass(Floats(300, 1e-42F))) {
      CHECK(std::abs(tiny) <= 2e-42F);
    }
    for (const float huge : pass(Floats(300, 3e38F))) {
      // Top-k and random-k leave some out; FP16 has no such number.
      CHECK((huge == 0.0F || huge == kInfinity || std::abs(huge / 3e38F - 1) < 0.01F));
      CHECK((huge == kInfinity) == (kind == plan::CodecKind::kFp16));
    }
    const Floats with_nan = pass({1.0F, kNan, 2.0F});
    CHECK(std::any_of(with_nan.begin(), with_nan.end(), [](float x) { return std::isnan(x); }));
    const Floats with_infinity = pass({1.0F, -kInfinity, 2.0F});
    CHECK(std::any_of(with_infinity.begin(), with_infinity.end(),
                      [](float x) { return !std::isfinite(x); }));
  }
}

TEST_CASE("codec: an 8-bit block with a NaN or an infinity is NaN, its neighbours are not") {
  const Subject subject = GENERATE(from_range(everywhere("int8")));
  CAPTURE(subject);
  const auto codec = subject.make();
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    Floats input = normal(3 * 256);
    input[300] = bad;
    const Floats output = decode(*codec, encode(*codec, input), input.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      CHECK(std::isnan(output[i]) == (i / 256 == 1));
    }
  }
}

TEST_CASE("codec: top-k keeps the largest, and refuses indices that cannot be") {
  const Subject subject = GENERATE(from_range(everywhere("topk:density=0.01")));
  CAPTURE(subject);
  const auto codec = subject.make();
  const Floats input = normal(10'000);
  const Encoded bytes = encode(*codec, input);
  const Floats output = decode(*codec, bytes, input.size());
  Floats kept;
  Floats dropped;
  for (std::size_t i = 0; i < input.size(); ++i) {
    (output[i] != 0 ? kept : dropped).push_back(std::abs(input[i]));
    CHECK((output[i] == 0 || output[i] == input[i]));
  }
  REQUIRE(kept.size() == 100);
  CHECK(*std::min_element(kept.begin(), kept.end()) >=
        *std::max_element(dropped.begin(), dropped.end()));

  for (const std::uint32_t index : {10'000U, 0xffffffffU}) {
    Encoded damaged = bytes;
    std::memcpy(damaged.data() + 4 * 99, &index, 4);  // the last of the ascending indices
    Floats untouched(input.size(), 1.0F);
    CHECK_THROWS_AS(codec->decode_add(damaged, untouched), RuntimeFailure);
    CHECK_THROWS_AS(codec->decode(damaged, untouched), RuntimeFailure);
    CHECK(untouched == Floats(input.size(), 1.0F));
  }
  Encoded descending = bytes;
  std::memcpy(descending.data(), bytes.data() + 4, 4);
  std::memcpy(descending.data() + 4, bytes.data(), 4);
  Floats untouched(input.size(), 1.0F);
  CHECK_THROWS_AS(codec->decode_add(descending, untouched), RuntimeFailure);
  CHECK(untouched == Floats(input.size(), 1.0F));
}

}  // namespace
}  // namespace rackrail::runtime::codec_test
