// Rings of groups: right on every grouping, and into each group everything once.
#include "planner/algorithms/group_rings.hpp"
#include "planner/groups/rank_groups.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/form_checks.hpp"
#include "tests/support/forms.hpp"

namespace rackrail::planner::group_rings_test {
namespace {

using plan::Collective;
using topology::Topology;

constexpr Collective kAll[] = {Collective::kAllGather, Collective::kReduceScatter,
                               Collective::kAllReduce};

TEST_CASE("rings of groups are right in any number of pieces") {
  for (const Topology& topology :
       {test::boxes(2, 8), test::boxes(3, 2), test::uneven_hosts(), test::clos({2, 4, 6}, 2),
        test::two_racks(), test::clos({1, 4, 7}, 2)}) {
    for (const Collective what : kAll) {
      for (const std::size_t pieces : {1, 2, 3}) {
        for (const char* codec : {"none", "fp16"}) {
          INFO(topology.name() << ", " << static_cast<int>(what) << " in " << pieces << ", "
                               << codec);
          topology::Router router(topology);
          const plan::Codec used = plan::parse_codec(codec);
          const ScheduleRequest request{topology, router, {used, used}};
          REQUIRE_FALSE(refuse_group_rings(topology, request.codecs));
          for (const RingWays ways : {RingWays::kOne, RingWays::kBoth}) {
            const plan::TransferGraph graph = make_group_rings(what, request, pieces, ways);
            const plan::VerifyReport report = plan::verify(graph, &topology);
            INFO((report.ok() ? std::string() : report.problems.front()));
            CHECK(report.ok());
          }
        }
      }
    }
  }
}

TEST_CASE("what rings of groups are like is known before they are made") {
  const Topology topology = test::uneven_hosts();
  topology::Router router(topology);
  const ScheduleRequest request{
      .topology = topology, .router = router, .codecs = {}, .most_transfers = 20'000};
  for (const Collective what : kAll) {
    const auto forms = group_ring_forms(what, request);
    REQUIRE(forms.size() > 3);
    for (const CollectiveForm& form : forms) {
      check_shape(form, topology);
    }
  }
}

/// Three racks of two hosts, whose switches have a narrow cable to each other.
Topology ring_of_racks() {
  Topology topology("ring of racks");
  std::vector<NodeId> tors;
  const auto join = [&](NodeId a, NodeId b, Bandwidth rate) {
    topology.add_duplex_link({.from = a, .to = b, .bandwidth = rate, .latency = 1_us});
  };
  for (const char* rack : {"rack0", "rack1", "rack2"}) {
    tors.push_back(topology.add_node(
        {.name = std::string(rack) + "-tor", .kind = topology::NodeKind::kTor, .rack = rack}));
    for (const char* host : {"a", "b"}) {
      const std::string name = std::string(rack) + host;
      const NodeId node = topology.add_node(
          {.name = name, .kind = topology::NodeKind::kGpu, .host = name, .rack = rack});
      topology.add_rank(node);
      join(node, tors.back(), 10_GBps);
    }
  }
  for (std::size_t i = 0; i < tors.size(); ++i) {
    join(tors[i], tors[(i + 1) % tors.size()], 5_GBps);
  }
  return topology;
}

TEST_CASE("pieces that go both ways round have a bound of their own where cables are of two ways") {
  const Topology topology = ring_of_racks();
  topology::Router router(topology);
  const ScheduleRequest request{
      .topology = topology, .router = router, .codecs = {}, .most_transfers = 20'000};
  for (const Collective what : kAll) {
    const auto forms = group_ring_forms(what, request);
    double least = 1;
    for (const CollectiveForm& form : forms) {
      const double made = plan::alpha_beta(form.graph(), topology).seconds_per_element;
      CHECK(form.shape().bound->seconds_per_element <= made * (1 + 1e-9));
      least = std::min(least, made);
    }
    // Each way round a cable has half of what one way round has all of.
    const double one = plan::alpha_beta(forms.front().graph(), topology).seconds_per_element;
    CHECK(least == Approx(0.625 * one));
  }
}

TEST_CASE("into each group of alike ones everything comes once, over all its links alike") {
  const Topology topology = test::boxes(4, 8);
  topology::Router router(topology);
  const auto graph = make_group_rings(Collective::kAllGather, {topology, router, {}}, 2);
  // Three quarters of the buffer over eight NICs of 25 GB/s.
  const double seconds = 4.0 * 3 / 4 / 8 / 25e9;
  CHECK(plan::alpha_beta(graph, topology).seconds_per_element == Approx(seconds));
}

// What arrives last is copied inside when nothing else is left to do: in parts of one size those
// would wait for each other, where NVSwitches are nearly as full as NICs.
TEST_CASE("of copies round a ring the last are the smallest") {
  const Topology topology = test::boxes(4, 8);
  topology::Router router(topology);
  const auto sizes = [&](Collective what) {
    const auto graph = make_group_rings(what, {topology, router, {}}, 4);
    std::vector<std::int64_t> of_pair;  // across groups, in the order in which they leave
    for (const plan::Transfer& transfer : graph.transfers()) {
      if (transfer.src == Rank(0) && transfer.dst == Rank(8)) {
        of_pair.push_back(graph.range(transfer, 1 << 20).size());
      }
    }
    return of_pair;
  };
  const auto gathered = sizes(Collective::kAllGather);
  REQUIRE(gathered.size() > 3 * 4);
  CHECK(gathered.back() * 8 < gathered.front());
  CAPTURE(gathered);
  const auto small = [&](std::int64_t size) { return size * 4 <= gathered.front(); };
  CHECK(std::all_of(gathered.end() - 5, gathered.end(), small));
  CHECK(std::none_of(gathered.begin(), gathered.begin() + 8, small));
  // Of sums, the first ones.
  const auto summed = sizes(Collective::kReduceScatter);
  CHECK(summed.front() * 2 == summed.back());
}

/// With one slow NIC; dead ones; unlike NICs on each rail; hosts of several sizes, whose lines
/// share members.
std::vector<Topology> with_uneven_lines() {
  return {test::rails_with_slow_nic(3, 12),
          test::boxes_with_slow_nics(4, {{1, 0, 12}, {2, 0, 5}, {3, 3, 20}}),
          test::boxes_with_slow_nics(5, {{0, 2, 0}, {4, 1, 3}}),
          test::boxes_with_nics({{25, 10, 3}, {25, 10, 3}, {25, 10, 3}}, 3), test::uneven_hosts()};
}

constexpr Collective kHalves[] = {Collective::kAllGather, Collective::kReduceScatter};

TEST_CASE("rings along uneven lanes are right in any number of pieces") {
  for (const Topology& topology : with_uneven_lines()) {
    for (const Collective what : kAll) {
      for (const std::size_t pieces : {1, 2, 3, 8}) {
        for (const char* codec : {"none", "fp16"}) {
          INFO(topology.name() << ", " << static_cast<int>(what) << " in " << pieces << ", "
                               << codec);
          topology::Router router(topology);
          const plan::Codec used = plan::parse_codec(codec);
          const ScheduleRequest request{topology, router, {used, used}};
          const LineLanes lanes = uneven_lanes(what, request);
          REQUIRE_FALSE(lanes.empty());
          for (const RingWays ways : {RingWays::kOne, RingWays::kBoth}) {
            const plan::TransferGraph graph = make_group_rings(what, request, pieces, ways, lanes);
            const plan::VerifyReport report = plan::verify(graph, &topology);
            INFO((report.ok() ? std::string() : report.problems.front()));
            CHECK(report.ok());
          }
        }
      }
    }
  }
}

TEST_CASE("along uneven lanes every rank owns as much of the buffer") {
  for (const Topology& topology : with_uneven_lines()) {
    topology::Router router(topology);
    const ScheduleRequest request{topology, router, {}};
    for (const Collective what : kHalves) {
      const plan::TransferGraph graph =
          make_group_rings(what, request, 3, RingWays::kOne, uneven_lanes(what, request));
      std::vector<std::uint64_t> owned(topology.rank_count());
      for (std::size_t chunk = 0; chunk < graph.chunk_count(); ++chunk) {
        owned[graph.owners()[chunk].index()] += graph.chunk_weights()[chunk];
      }
      CHECK(owned == std::vector<std::uint64_t>(owned.size(), owned.front()));
    }
  }
}

TEST_CASE("what rings along uneven lanes are like is known before they are made") {
  for (const Topology& topology : with_uneven_lines()) {
    topology::Router router(topology);
    const ScheduleRequest request{
        .topology = topology, .router = router, .codecs = {}, .most_transfers = 10'000};
    const std::size_t lines = ring_lines(tier_groups(topology));
    for (const Collective what : kAll) {
      const auto forms = group_ring_forms(what, request);
      const auto has = [&](const LineLanes& lanes) {
        const auto graph = make_group_rings(what, request, 1, RingWays::kOne, lanes);
        return std::ranges::any_of(forms, [&](const CollectiveForm& form) {
          return std::ranges::equal(form.graph().chunk_weights(), graph.chunk_weights());
        });
      };
      REQUIRE_FALSE(uneven_lanes(what, request).empty());
      CHECK(has(uneven_lanes(what, request)));
      CHECK(has(even_lanes(lines)));
      for (const CollectiveForm& form : forms) {
        check_shape(form, topology);
      }
    }
  }
}

TEST_CASE("along uneven lanes a box with a slow NIC has all its NICs full") {
  const Topology topology = test::rails_with_slow_nic(4, 12);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  for (const Collective what : kAll) {
    const int halves = what == Collective::kAllReduce ? 2 : 1;
    const auto seconds = [&](const LineLanes& lanes) {
      const auto graph = make_group_rings(what, request, 2, RingWays::kOne, lanes);
      return plan::alpha_beta(graph, topology).seconds_per_element;
    };
    const double bound = halves * 4.0 * 3 / 4 / (7 * 25e9 + 12e9);
    CHECK(seconds(uneven_lanes(what, request)) >= bound * (1 - 1e-9));
    CHECK(seconds(uneven_lanes(what, request)) <= 1.001 * bound);
    CHECK(seconds({}) == Approx(halves * 4.0 * 3 / 4 / 8 / 12e9));  // each line as much
  }
}

TEST_CASE("between boxes that are alike and between two boxes lanes are even") {
  const auto lanes = [](const Topology& topology, Collective what) {
    topology::Router router(topology);
    return uneven_lanes(what, {topology, router, {}});
  };
  CHECK(lanes(test::boxes(4, 8), Collective::kAllGather).empty());
  CHECK(lanes(test::rails_with_slow_diagonal(), Collective::kAllGather).empty());
  CHECK(lanes(test::rails_with_slow_nic(2, 12), Collective::kAllGather).empty());
}

TEST_CASE("of an all-reduce lines carry in proportion to their rates, and none is lent") {
  const Topology topology = test::rails_with_slow_nic(3, 12);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  const LineLanes lanes = uneven_lanes(Collective::kAllReduce, request);
  REQUIRE(lanes.size() == 8);
  for (std::size_t line = 0; line < lanes.size(); ++line) {
    REQUIRE(lanes[line].size() == 1);
    CHECK(lanes[line][0].owner == line);
    CHECK(lanes[line][0].weight ==
          Approx(kLaneUnits * 8 * (line == 0 ? 12 : 25) / 187.0).margin(1));
  }
  const auto make = [&](const LineLanes& along) {
    return make_group_rings(Collective::kAllReduce, request, 1, RingWays::kOne, along);
  };
  CHECK_THROWS_AS(make(uneven_lanes(Collective::kAllGather, request)), PlanError);
  CHECK_THROWS_AS(make(even_lanes(7)), PlanError);
}

TEST_CASE("there are no rings of groups without groups, or with a codec that loses at each hop") {
  CHECK(refuse_group_rings(test::grid(4, 4, true), {}));
  CHECK(refuse_group_rings(test::boxes(1, 8), {}));
  const plan::Codec int8 = plan::parse_codec("int8");
  const plan::Codec fp16 = plan::parse_codec("fp16");
  CHECK(refuse_group_rings(test::boxes(2, 8), {int8, int8}));
  CHECK(refuse_group_rings(test::boxes(2, 8), {{}, fp16}));
}

}  // namespace
}  // namespace rackrail::planner::group_rings_test
