// Exchanges between groups in several rounds, simulated.
#include "planner/algorithms/group_exchanges.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::group_exchange_test {
namespace {

using topology::Topology;

TEST_CASE("no exchange in rounds takes less than its bound says") {
  for (const Topology& topology : {test::clos({3, 1}, 2), test::clos({4, 2, 2}, 1),
                                   test::pods({{{2, 1}, {2}}, {{2}, {1, 2}}})}) {
    topology::Router router(topology);
    const auto costs = sim::make_cost_model(topology, {});
    for (const char* codec : {"none", "int8"}) {
      const plan::Codec used = plan::parse_codec(codec);
      const ScheduleRequest request{topology, router, {used, used}};
      constexpr std::size_t kRounds[] = {1, 2, 4, 8, 16};
      const auto forms =
          exchange_forms(direct_exchange(topology), plan::Collective::kAllReduce, request, kRounds);
      REQUIRE_FALSE(forms.empty());
      for (const CollectiveForm& form : forms) {
        for (const std::int64_t elements : {1, 100, 5'000, 1'000'000, 50'000'000}) {
          INFO(topology.name() << ", " << codec << ", " << elements);
          const Duration bound = form.shape().bound->at_least(elements);
          CHECK(bound <= costs->collective_time(form.graph(), elements, 1 << 16));
          CHECK(bound <= costs->collective_time(form.graph(), elements, 1 << 30));
        }
      }
    }
  }
}

/// Four racks of two hosts, at 1 Gbit/s under uplinks of half of it.
Topology slow_racks() {
  Topology topology = test::racks({{2, 2}, {2, 2}, {2, 2}, {2, 2}}, {1, 1, 1, 1});
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link link = topology.link(LinkId(l));
    topology.set_link_rate(
        LinkId(l), Bandwidth(link.bandwidth.bytes_per_second() / 1'000'000'000 * 62'500'000),
        link.latency);
  }
  return topology;
}

TEST_CASE("8-bit blocks between four racks of two are 5 % faster in rounds") {
  const Topology topology = slow_racks();
  constexpr std::int64_t kElements = 1 << 24;  // 64 MiB
  const plan::Codec int8 = plan::parse_codec("int8");
  const auto costs = sim::make_cost_model(topology, {});
  const auto found = fastest_collective(
      schedule_family("hierarchical"),
      {.elements = kElements, .topology = topology, .codecs = {int8, int8}, .costs = *costs});
  topology::Router router(topology);
  const plan::TransferGraph one =
      make_exchange(direct_exchange(topology), plan::Collective::kAllReduce,
                    {.topology = topology, .router = router, .codecs = {int8, int8}});
  Duration in_one_round = costs->collective_time(one, kElements, kElements);
  for (std::int64_t slice = 1 << 20; slice >= 1 << 13; slice /= 2) {
    in_one_round = std::min(in_one_round, costs->collective_time(one, kElements, slice));
  }
  CAPTURE(in_one_round.seconds(), found.value().time.seconds());
  CHECK(found.value().graph->chunk_count() > one.chunk_count());
  CHECK(found.value().time.seconds() <= 0.95 * in_one_round.seconds());
}

TEST_CASE("two kinds of boxes in one cluster are within 2 % of the joint optimum") {
  for (const Topology& topology : {test::old_and_new_boxes(), test::rails_of_two_kinds()}) {
    constexpr std::int64_t kElements = 1 << 28;  // 1 GiB
    const auto costs = sim::make_cost_model(topology, {});
    const auto found = fastest_collective(
        schedule_family("hierarchical"),
        {.elements = kElements, .topology = topology, .codecs = {}, .costs = *costs});
    const auto optimum =
        static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
    CHECK(found.value().time.seconds() <= 1.013 * 4 * kElements / optimum);
  }
}

}  // namespace
}  // namespace rackrail::planner::group_exchange_test
