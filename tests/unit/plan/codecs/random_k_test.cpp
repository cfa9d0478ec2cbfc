#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "plan/codecs/arithmetic.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan::random_k_test {
namespace {

using test::normal_values;

Codec random_k(double density) { return {.kind = CodecKind::kRandomK, .density = density}; }

std::vector<float> round_trip(const Codec& codec, const std::vector<float>& input, EncodeKey key,
                              std::span<float> residual = {}) {
  const auto arithmetic = make_codec_arithmetic(codec);
  std::vector<std::byte> bytes(static_cast<std::size_t>(
      encoded_size(codec, static_cast<std::int64_t>(input.size())).count()));
  arithmetic->encode(input, residual, key, bytes);
  std::vector<float> output(input.size());
  arithmetic->decode(bytes, output);
  return output;
}

TEST_CASE("randomk: every element is drawn equally often, one of each stratum") {
  // Strata of 100 elements, of 100 and 101, and of 1 and 2.
  const auto [elements, density] =
      GENERATE(table<std::size_t, double>({{1'000, 0.01}, {1'003, 0.01}, {70, 0.6}}));
  CAPTURE(elements, density);
  const Codec codec = random_k(density);
  const auto kept =
      static_cast<std::size_t>(kept_elements(codec, static_cast<std::int64_t>(elements)));
  const std::vector<float> ones(elements, 1.0F);
  constexpr std::uint64_t kRounds = 40'000;
  std::vector<int> drawn(elements, 0);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::vector<float> output = round_trip(codec, ones, {round, 0});
    std::size_t stratum = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      if (output[i] != 0) {
        REQUIRE(output[i] == 1);
        REQUIRE(i >= stratum * elements / kept);
        REQUIRE(i < (stratum + 1) * elements / kept);
        ++stratum;
        ++drawn[i];
      }
    }
    REQUIRE(stratum == kept);
  }
  for (std::size_t stratum = 0; stratum < kept; ++stratum) {
    const std::size_t begin = stratum * elements / kept;
    const std::size_t end = (stratum + 1) * elements / kept;
    const double probability = 1 / static_cast<double>(end - begin);
    const double expected = kRounds * probability;
    // Six standard deviations of a binomial distribution.
    const double allowed = 6 * std::sqrt(expected * (1 - probability));
    for (std::size_t i = begin; i < end; ++i) {
      CAPTURE(i, drawn[i], expected);
      CHECK(std::abs(drawn[i] - expected) <= allowed);
    }
  }
}

TEST_CASE("randomk: on average the dropped energy is what the model says, whatever the gradient") {
  const std::uint64_t seed = 43;
  INFO("seed " << seed);
  std::vector<float> input;
  for (const double v : normal_values(2'000, 1, seed)) {
    input.push_back(static_cast<float>(v * v * v));  // heavy tails
  }
  for (const double density : {0.01, 0.1, 0.5}) {
    CAPTURE(density);
    constexpr std::uint64_t kRounds = 20'000;
    double sum = 0;
    double energy = 0;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::vector<float> output = round_trip(random_k(density), input, {round, 0});
      for (std::size_t i = 0; i < input.size(); ++i) {
        sum += (double{input[i]} - output[i]) * (double{input[i]} - output[i]);
        energy += double{input[i]} * input[i];
      }
    }
    // The kept share varies by √(Σx⁴)/Σx² · √density from round to round: below 0.1 here.
    CHECK(sum / energy == Approx(std::pow(relative_error(random_k(density)), 2))
                              .margin(6 * 0.1 / std::sqrt(kRounds)));
  }
}

TEST_CASE("randomk: with feedback, what was sent in the long run is the gradient") {
  const std::vector<float> gradient(1'000, 1.0F);
  std::vector<float> residual(1'000, 0.0F);
  std::vector<double> sent(1'000, 0.0);
  constexpr int kSteps = 2'000;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const std::vector<float> output = round_trip(random_k(0.05), gradient, {step, 0}, residual);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sent[i] += output[i];
    }
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    // Ones only, so sums are exact: what is missing is what waits, 20 steps on average.
    CHECK(sent[i] + residual[i] == kSteps);
    CHECK(residual[i] < 600);  // (19/20)^600 · 1000 elements · 2000 steps = 1e-7
  }
}

TEST_CASE("randomk: ranks and slices with other keys draw other elements") {
  const std::vector<float> ones(10'000, 1.0F);
  std::set<std::vector<float>> drawn;
  for (std::uint64_t stream = 0; stream < 4; ++stream) {
    for (const std::int64_t first : {0, 10'000, 20'000}) {
      drawn.insert(round_trip(random_k(0.01), ones, {stream, first}));
    }
  }
  CHECK(drawn.size() == 12);
}

TEST_CASE("randomk: an overflow anywhere is noticed at once and does not stay in the feedback") {
  std::vector<float> gradient(1'000, 1.0F);
  std::vector<float> residual(1'000, 0.5F);
  gradient[777] = INFINITY;
  int not_numbers = 0;
  for (const float x : round_trip(random_k(0.01), gradient, {1, 0}, residual)) {
    not_numbers += std::isnan(x) ? 1 : 0;
  }
  CHECK(not_numbers == 10);
  CHECK(residual[777] == 0);
  for (const float x : residual) {
    CHECK((x == 0 || x == 1.5F));
  }
}

}  // namespace
}  // namespace rackrail::plan::random_k_test
