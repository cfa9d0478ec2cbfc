#include "planner/groups/line_rates.hpp"
#include "planner/groups/rank_groups.hpp"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::line_rates_test {
namespace {

/// In GB/s.
LineRates rates_in_gigabytes(const std::vector<std::vector<int>>& lines) {
  LineRates rates;
  for (const std::vector<int>& line : lines) {
    auto& of_line = rates.emplace_back();
    for (const int rate : line) {
      of_line.push_back(1_GBps * rate);
    }
  }
  return rates;
}

/// Of boxes with such NICs, to switch i mod `rails`.
LineRates rates_between_boxes(const std::vector<std::vector<int>>& nics, int rails,
                              LinesOverRanks over_ranks = LinesOverRanks::kLeftOut) {
  const topology::Topology topology = test::boxes_with_nics(nics, rails);
  topology::Router router(topology);
  return line_rates(topology, router, tier_groups(topology), nics.front().size(), over_ranks);
}

TEST_CASE("a line has the rates of its members' adapters, to whom they reach best") {
  CHECK(rates_between_boxes({{25, 25}, {25, 10}, {25, 25}}, 2) ==
        rates_in_gigabytes({{25, 25, 25}, {25, 10, 25}}));
  // With 12 and 10 alone, who has 25 sends 12 to one and 10 to the other.
  CHECK(rates_between_boxes({{25, 25}, {12, 25}, {10, 25}}, 2) ==
        rates_in_gigabytes({{12, 12, 10}, {25, 25, 25}}));
}

TEST_CASE("a line without an adapter is left out, or takes half of one beside it") {
  const std::vector<std::vector<int>> nics = {{24, 24}, {0, 24}, {24, 24}};
  CHECK(rates_between_boxes(nics, 2) == rates_in_gigabytes({{24, 0, 24}, {24, 24, 24}}));
  CHECK(rates_between_boxes(nics, 1, LinesOverRanks::kUsed) ==
        rates_in_gigabytes({{24, 12, 24}, {24, 12, 24}}));
}

TEST_CASE("what receives more slowly than it sends is as slow as that") {
  topology::Topology topology = test::hosts_with_nics(3, {20});
  for (std::size_t link = 0; link < topology.link_count(); ++link) {
    if (topology.link(LinkId(link)).to == topology.node_of(Rank(1))) {
      topology.set_link_rate(LinkId(link), 5_GBps, Duration());
    }
  }
  topology::Router router(topology);
  CHECK(line_rates(topology, router, tier_groups(topology), 1, LinesOverRanks::kUsed) ==
        rates_in_gigabytes({{20, 5, 20}}));
}

}  // namespace
}  // namespace rackrail::planner::line_rates_test
