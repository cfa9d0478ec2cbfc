// All-reduces over groups in groups, simulated.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::nested_groups_test {
namespace {

constexpr std::int64_t kSlice = 1 << 18;

struct Times {
  Duration two_levels;
  Duration best;
};

Times times_of(const topology::Topology& topology, std::int64_t elements) {
  topology::Router router(topology);
  const auto costs = sim::make_cost_model(topology, {});
  const ScheduleFamily& family = schedule_family("hierarchical");
  const auto forms = collective_forms(family, plan::Collective::kAllReduce, topology, router, {});
  const auto time = [&](std::size_t form, std::int64_t slice) {
    return costs->collective_time(forms[form].graph(), elements, slice);
  };
  const plan::TransferGraph two_levels = family.all_reduce({topology, router, {}});
  return {costs->collective_time(two_levels, elements, kSlice),
          fastest_division(shapes_of(forms), elements, time).time};
}

TEST_CASE("over narrow uplinks of racks, and of pods, levels take little more than the uplinks") {
  // Four racks, or two pods of two racks: of the buffer 6 M must come into racks, whose uplinks
  // have 6 GB/s each.
  const std::vector<std::vector<int>> rack(2, std::vector<int>(4, 4));
  const bool has_pods = GENERATE(false, true);
  const topology::Topology topology =
      has_pods ? test::pods({rack, rack})
               : test::pods({std::vector<std::vector<int>>(4, std::vector<int>(4, 4))});
  CAPTURE(has_pods);
  constexpr std::int64_t kElements = std::int64_t{1} << 26;  // 256 MiB
  const Duration least = Duration::from_seconds(6 * 4.0 * kElements / (4 * 6e9));
  const Times times = times_of(topology, kElements);
  CHECK(times.best >= least);
  CHECK(times.best <= scaled(least, 1.1));
  CHECK(times.two_levels >= scaled(least, 3.5));
}

TEST_CASE("over equal ways under oversubscribed spines, links are loaded evenly") {
  // Of six GPUs of a rack on one rail's four cables, and of four on four.
  const topology::Topology topology =
      GENERATE(test::rail_racks({.hosts = 3}), test::rail_racks({}),
               test::rail_racks({.racks = 3, .gpus = 4, .oversubscription = 2}));
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  const double least =
      4.0 * kElements /
      static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
  CAPTURE(topology.rank_count());
  CHECK(times_of(topology, kElements).best.seconds() <= 1.03 * least);
}

TEST_CASE("1 GiB over oversubscribed spines is within 2 % of the exact bounds level by level") {
  const topology::Topology topology =
      test::rail_racks({.racks = 3, .hosts = 4, .gpus = 4, .oversubscription = 8});
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  const auto costs = sim::make_cost_model(topology, {});
  const auto over = [&](plan::Collective what, Bandwidth optimum) {
    const auto found = fastest_collective(
        schedule_family("hierarchical"),
        {.what = what, .elements = kElements, .topology = topology, .codecs = {}, .costs = *costs});
    REQUIRE(found);
    CHECK(plan::verify(*found->graph, &topology).ok());
    return found->time.seconds() * static_cast<double>(optimum.bytes_per_second()) /
           (4.0 * kElements);
  };
  // In rounds of one size 1.020, 1.029 and 1.024.
  CHECK(over(plan::Collective::kAllGather, topology::allgather_bound(topology).algbw) <= 1.014);
  CHECK(over(plan::Collective::kReduceScatter, topology::reducescatter_bound(topology).algbw) <=
        1.02);
  CHECK(over(plan::Collective::kAllReduce, topology::joint_allreduce_bound(topology).algbw) <=
        1.01);
}

TEST_CASE("small all-reduces over groups in groups send fewer messages") {
  const topology::Topology topology =
      test::pods({std::vector<std::vector<int>>(4, std::vector<int>(4, 4))});
  const Times times = times_of(topology, 256);
  CHECK(times.best <= scaled(times.two_levels, 0.8));
}

TEST_CASE("groups of several sizes gain likewise") {
  const topology::Topology topology = test::pods({{{4, 4, 2}, {4, 3, 4, 4}}, {{4, 4, 4}}});
  const Times times = times_of(topology, std::int64_t{1} << 26);
  CHECK(times.best <= scaled(times.two_levels, 0.5));
}

}  // namespace
}  // namespace rackrail::planner::nested_groups_test
