// All-reduces for an emulated network: which family each size gets.
#include "cli/emulated_collectives.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "planner/search/held_rates.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli::emulated_collectives_test {
namespace {

/// Of one size and codec, by one family.
struct Choosable {
  EmulatedCollective of;
  Duration judged;  ///< as it is compared with others
  bool has_rates = false;
};

/// The cases of every family's plan, by size.
std::vector<std::vector<Choosable>> by_size(const std::vector<CollectivePlan>& plans,
                                            const topology::Topology& network) {
  std::vector<std::vector<Choosable>> sizes(plans.at(0).cases.size());
  for (const CollectivePlan& plan : plans) {
    REQUIRE(plan.cases.size() == sizes.size());
    REQUIRE(plan.plan.buckets.size() == sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      CHECK(plan.cases[i].family == plan.cases[0].family);
      CHECK(plan.cases[i].size == plans[0].cases[i].size);
      const plan::Bucket& bucket = plan.plan.buckets[i];
      const plan::TransferGraph& graph = plan.plan.schedules.at(bucket.schedule);
      sizes[i].push_back({.of = plan.cases[i],
                          .judged = planner::judged_by_rates(plan.cases[i].predicted, graph,
                                                             bucket.slice_elements, network),
                          .has_rates = graph.has_rates()});
    }
  }
  return sizes;
}

const Choosable& chosen_of(const std::vector<Choosable>& cases) {
  const auto is_chosen = [](const Choosable& one) { return one.of.is_chosen; };
  REQUIRE(std::ranges::count_if(cases, is_chosen) == 1);
  return *std::ranges::find_if(cases, is_chosen);
}

TEST_CASE("each size has the family that is judged fastest", "[slow]") {
  const topology::Topology network = test::racks({{10, 10, 10, 10}, {10, 10, 10, 10}}, {5, 5});
  CollectiveSelection selection{.smallest = 1_MiB, .largest = 256_MiB, .growth = 256};
  selection.every_schedule = true;
  const std::vector<std::vector<Choosable>> all =
      by_size(plan_collectives(network, {}, selection), network);
  REQUIRE(all.size() == 2);
  for (const std::vector<Choosable>& cases : all) {
    REQUIRE(cases.size() > 3);
    for (const Choosable& other : cases) {
      CAPTURE(chosen_of(cases).of.family, other.of.family);
      CHECK(chosen_of(cases).judged <= other.judged);
    }
  }
  selection.every_schedule = false;
  const std::vector<CollectivePlan> one = plan_collectives(network, {}, selection);
  REQUIRE(one.size() == 1);
  REQUIRE(one[0].cases.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(one[0].cases[i].is_chosen);
    CHECK(one[0].cases[i].family == chosen_of(all[i]).of.family);
  }
}

TEST_CASE(
    "what has no rates is chosen where nothing is predicted faster by more than short messages may "
    "cost") {
  // Two at most share an uplink, which is no crowd.
  const topology::Topology network = test::racks({{10, 10}, {10, 10}}, {1, 1});
  CollectiveSelection selection{.smallest = 64_MiB, .largest = 256_MiB, .growth = 4};
  selection.every_schedule = true;
  for (const std::vector<Choosable>& cases :
       by_size(plan_collectives(network, {}, selection), network)) {
    REQUIRE_FALSE(chosen_of(cases).has_rates);
    const auto predicted = [](const Choosable& one) { return one.of.predicted; };
    CHECK(chosen_of(cases).of.predicted <=
          scaled(predicted(*std::ranges::min_element(cases, {}, predicted)),
                 planner::kMostForShortMessages));
  }
}

TEST_CASE("choices are by codec and size, whichever family was measured first") {
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  std::vector<EmulatedCollective> cases;
  const auto add = [&](const plan::Codec& codec, Bytes size, const char* family, bool is_chosen,
                       Duration measured) {
    cases.push_back({.size = size,
                     .codec = codec,
                     .family = family,
                     .is_chosen = is_chosen,
                     .predicted = measured,
                     .measured = measured});
  };
  for (const plan::Codec& codec : {plan::Codec{}, fp16}) {
    add(codec, 1_MiB, "ring", false, 3_ms);
    add(codec, 4_MiB, "ring", true, 8_ms);
    add(codec, 1_MiB, "forest", true, 4_ms);
    add(codec, 4_MiB, "forest", false, 9_ms);
  }
  const std::vector<MeasuredChoice> choices = measured_choices(cases);
  REQUIRE(choices.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(choices[i].chosen->codec == (i < 2 ? plan::Codec{} : fp16));
    CHECK(choices[i].chosen->size == (i % 2 == 0 ? 1_MiB : 4_MiB));
    CHECK(choices[i].best->family == "ring");
  }
}

TEST_CASE("each family has a plan of its own for each codec") {
  const topology::Topology network = test::racks({{10, 10}, {10, 10}}, {5, 5});
  CollectiveSelection selection{.smallest = 1_MiB, .largest = 4_MiB};
  selection.codecs = {plan::Codec{}, plan::Codec{.kind = plan::CodecKind::kFp16}};
  selection.every_schedule = true;
  std::vector<std::pair<plan::Codec, std::string>> seen;
  for (const CollectivePlan& plan : plan_collectives(network, {}, selection)) {
    CHECK(plan.cases.size() == 2);
    seen.emplace_back(plan.codec(), plan.cases[0].family);
    for (const EmulatedCollective& one : plan.cases) {
      CHECK(one.codec == plan.codec());
      CHECK(one.family == plan.cases[0].family);
    }
  }
  REQUIRE(seen.size() > 4);
  for (std::size_t i = 1; i < seen.size(); ++i) {
    CHECK(std::ranges::find(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(i), seen[i]) ==
          seen.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace
}  // namespace rackrail::cli::emulated_collectives_test
