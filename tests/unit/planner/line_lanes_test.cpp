// Lanes against what they are for: every owner's data is carried once, by lines as they are fast.
#include "planner/groups/line_lanes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <vector>

namespace rackrail::planner::line_lanes_test {
namespace {

std::vector<Bandwidth> gigabytes(const std::vector<int>& rates) {
  std::vector<Bandwidth> bandwidths;
  for (const int rate : rates) {
    bandwidths.push_back(1_GBps * rate);
  }
  return bandwidths;
}

std::vector<std::uint32_t> loads(const LineLanes& lanes, std::size_t lines) {
  std::vector<std::uint32_t> of_lines(lines);
  for (const LineLane& lane : lanes) {
    of_lines.at(lane.line) += lane.weight;
  }
  return of_lines;
}

/// Of what a line owns that others carry, and it does.
std::vector<std::uint32_t> owned(const LineLanes& lanes, std::size_t lines) {
  std::vector<std::uint32_t> of_owners(lines);
  for (const LineLane& lane : lanes) {
    CHECK(lane.weight > 0);
    of_owners.at(lane.owner) += lane.weight;
  }
  return of_owners;
}

TEST_CASE("lines that are equally fast carry what their own members have") {
  CHECK(lanes_by_rates(gigabytes({25, 25, 25})).empty());
  CHECK(lanes_by_rates(gigabytes({25, 24, 25})).empty());  // within 5 %
  CHECK(lanes_by_rates(gigabytes({0, 0})).empty());
  CHECK(lanes_by_rates({}).empty());
}

TEST_CASE("lines carry in proportion to their rates, and of each owner the whole") {
  std::mt19937 random(7);
  std::vector<std::vector<int>> cases = {
      {12, 25, 25, 25, 25, 25, 25, 25}, {25, 25, 10, 3}, {1, 50}, {25, 0, 25, 12}, {0, 25}};
  for (int i = 0; i < 50; ++i) {
    auto& rates = cases.emplace_back();
    rates.resize(2 + random() % 63);
    std::generate(rates.begin(), rates.end(), [&] { return static_cast<int>(random() % 100); });
    rates.front() = 100;
    rates.back() = 7;
  }
  for (const std::vector<int>& rates : cases) {
    CAPTURE(rates);
    const LineLanes lanes = lanes_by_rates(gigabytes(rates));
    CHECK(owned(lanes, rates.size()) == std::vector<std::uint32_t>(rates.size(), kLaneUnits));
    const std::vector<std::uint32_t> of_lines = loads(lanes, rates.size());
    double last = 0;  // to be through: load over rate
    for (std::size_t line = 0; line < rates.size(); ++line) {
      if (of_lines[line] > 0) {
        last = std::max(last, of_lines[line] / static_cast<double>(rates[line]));
      }
      const bool lends_and_carries = std::ranges::any_of(
          lanes, [&](const LineLane& lane) { return lane.line == line && lane.owner != line; });
      CHECK(lends_and_carries == (of_lines[line] > kLaneUnits));
    }
    CHECK(lanes.size() < 2 * rates.size());
    // None could take a unit from that one and be through sooner.
    for (std::size_t line = 0; line < rates.size(); ++line) {
      CHECK(of_lines[line] + 1 >= last * rates[line] * (1 - 1e-12));
    }
  }
}

TEST_CASE("with one slow line of eight no line takes a thousandth longer than it must") {
  const std::vector<int> rates = {12, 25, 25, 25, 25, 25, 25, 25};
  const std::vector<std::uint32_t> of_lines = loads(lanes_by_rates(gigabytes(rates)), rates.size());
  for (std::size_t line = 0; line < rates.size(); ++line) {
    CHECK(of_lines[line] / (8.0 * kLaneUnits) / (rates[line] / 187.0) <= 1.001);
  }
}

TEST_CASE("a line of rate 0 carries nothing") {
  const LineLanes lanes = lanes_by_rates(gigabytes({25, 0, 25}));
  CHECK(lanes == LineLanes{{0, 0, kLaneUnits}, {2, 2, kLaneUnits}, {0, 1, 512}, {2, 1, 512}});
}

TEST_CASE("without what is lent lines carry as much, and own all of it") {
  const LineLanes lanes = lanes_by_rates(gigabytes({25, 10, 0, 12}));
  const LineLanes own = without_lent(lanes);
  CHECK(loads(own, 4) == loads(lanes, 4));
  CHECK(own.size() == 3);  // none for the line of rate 0
  CHECK(std::ranges::all_of(own, [](const LineLane& lane) { return lane.owner == lane.line; }));
}

}  // namespace
}  // namespace rackrail::planner::line_lanes_test
