// All-reduces for an emulated network: which family each size gets.
#include "cli/emulated_collectives.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "planner/held_rates.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli {
namespace {

/// As the plan's bucket of this case is compared with others.
Duration judged(const CollectivePlan& plan, std::size_t number, const topology::Topology& network) {
  const plan::Bucket& bucket = plan.plan.buckets.at(number);
  return planner::judged_by_rates(plan.cases[number].predicted,
                                  plan.plan.schedules.at(bucket.schedule), bucket.slice_elements,
                                  network);
}

std::size_t chosen_of(const CollectivePlan& plan) {
  const auto is_chosen = [](const EmulatedCollective& one) { return one.is_chosen; };
  REQUIRE(std::ranges::count_if(plan.cases, is_chosen) == 1);
  return static_cast<std::size_t>(std::ranges::find_if(plan.cases, is_chosen) - plan.cases.begin());
}

TEST_CASE("each size has the family that is judged fastest") {
  const topology::Topology network = test::racks({{10, 10, 10, 10}, {10, 10, 10, 10}}, {5, 5});
  CollectiveSelection selection{.smallest = 1_MiB, .largest = 256_MiB, .growth = 256};
  selection.every_schedule = true;
  const std::vector<CollectivePlan> all = plan_collectives(network, {}, selection);
  REQUIRE(all.size() == 2);
  for (const CollectivePlan& plan : all) {
    REQUIRE(plan.cases.size() == plan.plan.buckets.size());
    const std::size_t chosen = chosen_of(plan);
    for (std::size_t other = 0; other < plan.cases.size(); ++other) {
      CAPTURE(plan.cases[chosen].family, plan.cases[other].family);
      CHECK(judged(plan, chosen, network) <= judged(plan, other, network));
    }
  }
  selection.every_schedule = false;
  const std::vector<CollectivePlan> one = plan_collectives(network, {}, selection);
  REQUIRE(one.size() == 1);
  REQUIRE(one[0].cases.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(one[0].cases[i].is_chosen);
    CHECK(one[0].cases[i].family == all[i].cases[chosen_of(all[i])].family);
  }
}

TEST_CASE("what has no rates is chosen where it is predicted fastest only") {
  // A tree over the uplinks has one sender in each rack, and takes a little longer than a forest.
  const topology::Topology network = test::racks({{10, 10, 10, 10}, {10, 10, 10, 10}}, {1, 1});
  CollectiveSelection selection{.smallest = 64_MiB, .largest = 256_MiB, .growth = 4};
  selection.every_schedule = true;
  for (const CollectivePlan& plan : plan_collectives(network, {}, selection)) {
    const std::size_t chosen = chosen_of(plan);
    REQUIRE_FALSE(plan.plan.schedules.at(plan.plan.buckets.at(chosen).schedule).has_rates());
    const auto fastest = std::ranges::min_element(plan.cases, {}, &EmulatedCollective::predicted);
    CHECK(plan.cases[chosen].family == fastest->family);
  }
}

}  // namespace
}  // namespace rackrail::cli
