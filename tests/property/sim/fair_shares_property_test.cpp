// The solver of max–min fair rates against progressive filling, while flows come and go.
#include "sim/fair_shares.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.hpp"
#include "tests/property/sim/progressive_filling.hpp"
#include "tests/property/sim/random_flows.hpp"

namespace rackrail::sim::test::fair_shares_property_test {
namespace {

constexpr std::uint64_t kSeed = 20261121;
constexpr int kGraphs = 1000;
constexpr int kChanges = 20;
constexpr double kTolerance = 1e-6;

/// The largest relative difference.
double difference(std::span<const double> rates, std::span<const double> expected) {
  double worst = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double gap = std::abs(rates[i] - expected[i]);
    worst = std::max(worst, gap == 0 ? 0 : gap / expected[i]);
  }
  return worst;
}

/// A solver, the flows that are in it, and the rates as a caller knows them: from solve() alone.
class Present {
 public:
  explicit Present(RandomFlows& set)
      : set_(set), shares_(set.capacities), is_in_(set.flows.size()), rates_(set.flows.size()) {}

  bool contains(std::size_t flow) const { return is_in_[flow]; }
  void add(std::size_t flow) {
    is_in_[flow] = true;
    shares_.add(static_cast<FairShares::Flow>(flow), set_.flows[flow].links, set_.flows[flow].cap,
                set_.flows[flow].shares);
  }
  void remove(std::size_t flow) {
    is_in_[flow] = false;
    shares_.remove(static_cast<FairShares::Flow>(flow));
  }
  void set_capacity(std::size_t link, double capacity) {
    set_.capacities[link] = capacity;
    shares_.set_capacity(LinkId(link), capacity);
  }
  void solve() {
    for (const FairShares::Flow flow : shares_.solve()) {
      REQUIRE(is_in_[flow]);
      rates_[flow] = shares_.rate(flow);
    }
  }

  std::vector<std::size_t> flows() const {
    std::vector<std::size_t> in;
    for (std::size_t flow = 0; flow < is_in_.size(); ++flow) {
      if (is_in_[flow]) {
        in.push_back(flow);
      }
    }
    return in;
  }
  std::vector<Demand> demands() const {
    std::vector<Demand> demands;
    for (const std::size_t flow : flows()) {
      demands.push_back({set_.flows[flow].links, set_.flows[flow].cap, set_.flows[flow].shares});
    }
    return demands;
  }
  std::vector<double> rates() const {
    std::vector<double> rates;
    for (const std::size_t flow : flows()) {
      rates.push_back(rates_[flow]);
    }
    return rates;
  }

 private:
  RandomFlows& set_;
  FairShares shares_;
  std::vector<bool> is_in_;
  std::vector<double> rates_;
};

}  // namespace

TEST_CASE(
    "rates are those of progressive filling and of a fresh solver, as flows come and go and links "
    "change, whatever their shares") {
  std::size_t compared = 0;
  std::size_t incremental = 0;
  for (std::uint64_t seed = kSeed; seed < kSeed + kGraphs; ++seed) {
    RandomFlows set = random_flows(seed);
    const bool spreads = seed % 2 == 1;
    if (spreads) {
      draw_shares(set, seed);
    }
    CAPTURE(seed, spreads, set.kind, set.capacities.size(), set.flows.size());
    std::uint64_t counter = 0;
    const auto percent = [&] { return random_bits(~seed, counter++) % 100; };
    Present present(set);
    for (int change = 0; change < kChanges; ++change) {
      CAPTURE(change);
      // Single flows, a tenth of all, or most of them.
      const std::uint64_t share = std::array<std::uint64_t, 3>{2, 10, 60}[percent() % 3];
      for (std::size_t flow = 0; flow < set.flows.size(); ++flow) {
        if (percent() < share) {
          present.contains(flow) ? present.remove(flow) : present.add(flow);
        }
      }
      // Every other time some links get wider, narrower, or are cut.
      for (std::size_t link = 0; change % 2 == 1 && link < set.capacities.size(); ++link) {
        if (percent() < 5) {
          const double factor = std::array<double, 4>{0.1, 0.5, 3, 10}[percent() % 4];
          present.set_capacity(link, percent() < 10 ? 0 : (set.capacities[link] + 1e6) * factor);
        }
      }
      present.solve();
      const std::vector<double> rates = present.rates();
      const std::vector<Demand> demands = present.demands();
      const std::vector<double> expected = progressive_filling(set.capacities, demands);
      REQUIRE(why_unfair(set.capacities, demands, expected, 1e-9) == "");
      REQUIRE(difference(rates, expected) <= kTolerance);
      REQUIRE(why_unfair(set.capacities, demands, rates, kTolerance) == "");

      Present fresh(set);
      for (const std::size_t flow : present.flows()) {
        fresh.add(flow);
      }
      fresh.solve();
      REQUIRE(difference(rates, fresh.rates()) <= kTolerance);
      compared += rates.size();
      incremental += change > 0 ? rates.size() : 0;
    }
  }
  // Should the generator ever draw next to nothing, the above would pass without having looked.
  CHECK(compared > 400'000);
  CHECK(incremental > 400'000);
}

TEST_CASE("the oracle gives the rates of the parking lot, with and without a cap") {
  // One flow over all of three links, one on each; the second link is the narrowest.
  const std::vector<double> capacities{10, 4, 30};
  const std::vector<LinkId> all{LinkId(0), LinkId(1), LinkId(2)};
  std::vector<Demand> demands{{all, {}}};
  for (std::size_t l = 0; l < 3; ++l) {
    demands.push_back({std::span(all).subspan(l, 1), {}});
  }
  CHECK(progressive_filling(capacities, demands) == std::vector<double>{2, 8, 2, 28});
  demands[2].cap = 1;
  CHECK(progressive_filling(capacities, demands) == std::vector<double>{3, 7, 1, 27});
}

TEST_CASE("the judge of fairness sees one rate that is too high or too low") {
  for (std::uint64_t seed = kSeed; seed < kSeed + 100; ++seed) {
    const RandomFlows set = random_flows(seed, 20, 40);
    CAPTURE(seed, set.kind);
    std::vector<Demand> demands;
    for (const RandomFlow& flow : set.flows) {
      demands.push_back({flow.links, flow.cap});
    }
    std::vector<double> rates = progressive_filling(set.capacities, demands);
    for (double& rate : rates) {
      const double right = rate;
      rate = right * 1.01;
      REQUIRE(why_unfair(set.capacities, demands, rates, kTolerance) != "");
      rate = right * 0.99;
      REQUIRE(why_unfair(set.capacities, demands, rates, kTolerance) != "");
      rate = right;
    }
    REQUIRE(why_unfair(set.capacities, demands, rates, kTolerance) == "");
  }
}

}  // namespace rackrail::sim::test::fair_shares_property_test
