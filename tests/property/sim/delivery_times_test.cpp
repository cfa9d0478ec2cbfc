// The network model's completion times against a plain fluid simulation.
#include "tests/property/sim/delivery_times.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "tests/property/sim/progressive_filling.hpp"

namespace rackrail::sim::test::delivery_times_test {
namespace {

constexpr std::uint64_t kSeed = 20261122;

/// Seconds, by flow: progressive filling of all that moves, from one start or end to the next.
std::vector<double> fluid_times(const RandomFlows& set) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t count = set.flows.size();
  std::vector<double> left(count);
  std::vector<double> ends(count, kNever);
  for (std::size_t f = 0; f < count; ++f) {
    left[f] = static_cast<double>(set.flows[f].bytes);
  }
  double now = 0;
  while (true) {
    std::vector<std::size_t> moving;
    std::vector<Demand> demands;
    double next = kNever;
    for (std::size_t f = 0; f < count; ++f) {
      const double start = static_cast<double>(set.flows[f].start) * 1e-12;
      if (start > now) {
        next = std::min(next, start);
      } else if (ends[f] == kNever) {
        moving.push_back(f);
        demands.push_back({set.flows[f].links, set.flows[f].cap});
      }
    }
    if (moving.empty() && next == kNever) {
      return ends;
    }
    const std::vector<double> rates = progressive_filling(set.capacities, demands);
    for (std::size_t i = 0; i < moving.size(); ++i) {
      next = std::min(next, now + left[moving[i]] / rates[i]);
    }
    for (std::size_t i = 0; i < moving.size(); ++i) {
      const std::size_t f = moving[i];
      left[f] -= rates[i] * (next - now);
      if (left[f] <= rates[i] * 1e-12) {  // within a picosecond
        ends[f] = next;
      }
    }
    now = next;
  }
}

}  // namespace

TEST_CASE("flows of a random set end when a plain fluid simulation says") {
  std::size_t compared = 0;
  for (std::uint64_t seed = kSeed; seed < kSeed + 1000; ++seed) {
    const RandomFlows set = random_flows(seed, 30, 60);
    CAPTURE(seed, set.kind, set.capacities.size(), set.flows.size());
    const std::vector<std::int64_t> times = delivery_times(set);
    const std::vector<double> expected = fluid_times(set);
    for (std::size_t f = 0; f < times.size(); ++f) {
      CAPTURE(f);
      REQUIRE(static_cast<double>(times[f]) * 1e-12 == Approx(expected[f]).epsilon(1e-6).margin(0));
      ++compared;
    }
  }
  CHECK(compared > 20'000);
}

}  // namespace rackrail::sim::test::delivery_times_test
