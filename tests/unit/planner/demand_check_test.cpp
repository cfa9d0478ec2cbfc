// Whether trees fit, asked again and again while arcs change.
#include "planner/packing/demand_check.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace rackrail::planner::demand_check_test {
namespace {

constexpr Vertex kTerminals = 5;
constexpr Vertex kSwitches = 3;
constexpr std::int64_t kRoots = 2;
constexpr std::int64_t kEnough = 1000;

using Capacities = std::vector<std::vector<std::int64_t>>;

LogicalNetwork network_of(const Capacities& capacities) {
  std::vector<std::int64_t> roots(kTerminals, kRoots);
  std::vector<bool> is_terminal(kTerminals, true);
  roots.resize(kTerminals + kSwitches);
  is_terminal.resize(kTerminals + kSwitches);
  LogicalNetwork network(roots, is_terminal);
  for (Vertex from = 0; from < capacities.size(); ++from) {
    for (Vertex to = 0; to < capacities.size(); ++to) {
      if (capacities[from][to] > 0) {
        network.add_link(from, to, capacities[from][to], LinkId(0));
      }
    }
  }
  return network;
}

TEST_CASE("what trees miss after many changes is what a check that knows of none finds") {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  std::size_t met = 0;
  std::size_t missed = 0;
  for (int trial = 0; trial < 20; ++trial) {
    constexpr Vertex kAll = kTerminals + kSwitches;
    Capacities capacities(kAll, std::vector<std::int64_t>(kAll));
    for (Vertex from = 0; from < kAll; ++from) {
      for (Vertex to = 0; to < kAll; ++to) {
        capacities[from][to] = from != to ? below(5) : 0;
      }
    }
    const LogicalNetwork network = network_of(capacities);
    DemandCheck check(network, network.terminals());
    for (int change = 0; change < 60; ++change) {
      const Vertex from = below(kAll);
      const Vertex to = (from + 1 + below(kAll - 1)) % kAll;
      const std::int64_t units =
          below(2) == 0 ? std::int64_t{1} : -std::min<std::int64_t>(2, capacities[from][to]);
      capacities[from][to] += units;
      check.change(from, to, units);
      const LogicalNetwork now = network_of(capacities);
      const std::int64_t deficit = DemandCheck(now, now.terminals()).deficit(kEnough);
      REQUIRE(check.deficit(kEnough) == deficit);
      REQUIRE(check.is_met() == (deficit == 0));
      ++(deficit == 0 ? met : missed);
    }
  }
  CHECK(met > 100);
  CHECK(missed > 100);
}

}  // namespace
}  // namespace rackrail::planner::demand_check_test
