// 1 GiB on clusters that no part of the planner was made for, simulated, against the exact bounds.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "tests/support/best_collective.hpp"
#include "tests/support/random_clusters.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::random_clusters_test {
namespace {

using plan::Collective;

TEST_CASE(
    "on random clusters half of the best collectives are within 2 % of the bounds, most within 8 %",
    "[slow]") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  constexpr std::uint64_t kClusters = 30;
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  constexpr double kMedian = 1.02;
  constexpr double kWorst = 1.08;
  // What is not reached, with what is: all-reduces past one slow NIC that has every tree wait.
  const std::map<std::uint64_t, double> above = {{0, 1.13}, {11, 1.28}};
  std::vector<double> over;
  for (std::uint64_t seed = 0; seed < kClusters; ++seed) {
    const topology::Topology topology = test::random_cluster(seed);
    for (const auto& [name, what] : {std::pair("all-gather", Collective::kAllGather),
                                     std::pair("reduce-scatter", Collective::kReduceScatter),
                                     std::pair("all-reduce", Collective::kAllReduce)}) {
      const test::BestCollective best = test::best_collective(topology, what, kElements);
      CAPTURE(seed, topology.name(), topology.rank_count(), name, best.family, best.over_optimum);
      CHECK(plan::verify(*best.found.graph, &topology).problems == std::vector<std::string>{});
      CHECK(best.over_optimum >= 1 - 1e-5);  // else it would be no bound
      const auto known = above.find(seed);
      const bool is_above = known != above.end() && what == Collective::kAllReduce;
      CHECK(best.over_optimum <= (is_above ? known->second : kWorst));
      over.push_back(best.over_optimum);
    }
  }
  std::ranges::nth_element(over, over.begin() + static_cast<std::ptrdiff_t>(over.size() / 2));
  CHECK(over[over.size() / 2] <= kMedian);
}

}  // namespace
}  // namespace rackrail::random_clusters_test
