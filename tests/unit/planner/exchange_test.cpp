// Multi-dimensional exchanges: right over every hierarchy, whatever the ways, rounds and codecs; as
// much over links as must be; and known before they are made.
#include "planner/algorithms/exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/group_exchanges.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/form_checks.hpp"
#include "tests/support/forms.hpp"

namespace rackrail::planner::exchange_test {
namespace {

using plan::Collective;
using topology::Topology;

constexpr Collective kAll[] = {Collective::kAllGather, Collective::kReduceScatter,
                               Collective::kAllReduce};

void check_right(const plan::TransferGraph& graph, const Topology& topology) {
  CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
}

void check_owned_alike(const plan::TransferGraph& graph, std::size_t ranks) {
  std::vector<std::uint64_t> owned(ranks);
  for (std::size_t chunk = 0; chunk < graph.chunk_count(); ++chunk) {
    owned[graph.owners()[chunk].index()] += graph.chunk_weights()[chunk];
  }
  CHECK(owned == std::vector<std::uint64_t>(ranks, owned.front()));
  CHECK(owned.front() > 0);
}

TierCodecs codecs_of(const char* inside, const char* across) {
  return {plan::parse_codec(inside), plan::parse_codec(across)};
}

std::size_t count_of(const Topology& topology) { return ring_of_groups(topology).size(); }

TEST_CASE("rings of groups are right in any number of rounds, one way and both ways") {
  for (const Topology& topology :
       {test::boxes(2, 8), test::boxes(3, 2), test::uneven_hosts(), test::clos({2, 4, 6}, 2),
        test::two_racks(), test::clos({1, 4, 7}, 2)}) {
    topology::Router router(topology);
    const Exchange exchange = ring_exchange(topology, {count_of(topology)});
    for (const Collective what : kAll) {
      for (const char* codec : {"none", "fp16"}) {
        for (const std::size_t rounds : {1, 2, 3}) {
          for (const bool alternate : {false, true}) {
            INFO(topology.name() << ", " << static_cast<int>(what) << ", " << codec << ", "
                                 << rounds);
            const auto graph = make_exchange(
                exchange, what, {topology, router, codecs_of(codec, codec)}, rounds, alternate);
            check_right(graph, topology);
            CHECK(graph.transfers().size() ==
                  exchange_transfers(exchange, what, rounds, alternate));
            if (what != Collective::kAllReduce) {
              check_owned_alike(graph, topology.rank_count());
            }
          }
        }
      }
    }
  }
}

TEST_CASE("rings within rings are right, whatever their sides") {
  struct Case {
    Topology topology;
    GridSides sides;
  };
  for (const auto& [topology, sides] :
       {Case{test::boxes(4, 8), {2, 2}}, Case{test::boxes(6, 2), {3, 2}},
        Case{test::boxes(6, 2), {2, 3}}, Case{test::boxes(8, 8), {2, 2, 2}},
        Case{test::clos({1, 4, 7, 2}, 2), {2, 2}}, Case{test::pcie_hosts(12), {3, 2, 2}}}) {
    topology::Router router(topology);
    const Exchange exchange = ring_exchange(topology, sides);
    for (const Collective what : kAll) {
      for (const std::size_t rounds : {1U, 2U, 3U}) {
        INFO(topology.name() << ", " << static_cast<int>(what) << " in " << rounds);
        const auto graph = make_exchange(exchange, what, {topology, router, {}}, rounds, true);
        check_right(graph, topology);
        CHECK(graph.transfers().size() == exchange_transfers(exchange, what, rounds, true));
      }
    }
  }
}

TEST_CASE("rings within rings send as much as one ring, in fewer transfers one after the other") {
  const Topology topology = test::boxes(16, 8);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  for (const Collective what : kAll) {
    const auto ring = make_exchange(ring_exchange(topology, {16}), what, request);
    const auto grid = make_exchange(ring_exchange(topology, {4, 4}), what, request);
    CHECK(plan::alpha_beta(grid, topology).seconds_per_element ==
          Approx(plan::alpha_beta(ring, topology).seconds_per_element));
    // 6 hops instead of 15, and as many again of an all-reduce.
    const std::size_t fewer = what == Collective::kAllReduce ? 18 : 9;
    CHECK(plan::verify(grid, nullptr).depth + fewer <= plan::verify(ring, nullptr).depth);
    CHECK(3 * grid.transfers().size() < 2 * ring.transfers().size());
  }
}

TEST_CASE("groups exchange directly in any number of rounds, in codecs by tier") {
  for (const Topology& topology : {test::clos({3, 1}, 2), test::clos({4, 2, 2}, 1),
                                   test::boxes(3, 2), test::pods({{{2, 1}, {2}}, {{2}, {1, 2}}})}) {
    topology::Router router(topology);
    const Exchange exchange = direct_exchange(topology);
    for (const auto& [inside, across] :
         {std::pair("none", "none"), std::pair("none", "int8"), std::pair("int8", "int8")}) {
      const bool has_single = std::ranges::any_of(
          ring_of_groups(topology), [](const auto& group) { return group.ranks.size() == 1; });
      if (has_single && std::string_view(inside) != std::string_view(across)) {
        continue;  // refused by the family
      }
      for (const std::size_t rounds : {1, 2, 3, 5, 8}) {
        INFO(topology.name() << ", " << inside << ", " << across << ", " << rounds << " rounds");
        const auto graph = make_exchange(exchange, Collective::kAllReduce,
                                         {topology, router, codecs_of(inside, across)}, rounds);
        check_right(graph, topology);
        CHECK(graph.transfers().size() ==
              exchange_transfers(exchange, Collective::kAllReduce, rounds));
      }
    }
  }
}

TEST_CASE("chunks of no weight are left out of every round") {
  const Topology topology = test::clos({4, 2, 2}, 1);
  topology::Router router(topology);
  // Of 4 lines and 3 groups; the second group owns nothing.
  const Exchange exchange = direct_exchange(topology, {1, 0, 3, 1, 0, 3, 2, 0, 1, 2, 0, 1});
  const auto graph = make_exchange(exchange, Collective::kAllReduce,
                                   {topology, router, codecs_of("int8", "int8")}, 3);
  check_right(graph, topology);
  CHECK(graph.chunk_count() == 3 * 8);
  CHECK(std::ranges::count(graph.chunk_weights(), 0U) == 0);
}

TEST_CASE("the first and the last rounds are smaller than those between") {
  using Sizes = std::vector<std::uint32_t>;
  CHECK(round_sizes(1) == Sizes{1});
  CHECK(round_sizes(2) == Sizes{1, 1});
  CHECK(round_sizes(3) == Sizes{1, 2, 1});
  CHECK(round_sizes(8) == Sizes{1, 2, 4, 4, 4, 4, 2, 1});
  const Sizes many = round_sizes(48);
  CHECK(*std::ranges::max_element(many) == 16);
  CHECK(std::ranges::count(many, 16U) == 40);
}

Topology regular(std::size_t pods, std::size_t racks, std::size_t hosts, int gpus) {
  return test::pods({pods, std::vector(racks, std::vector(hosts, gpus))});
}

/// Shares of the buffer that links carry whose names start so.
std::set<double> carried(const plan::TransferGraph& graph, const Topology& topology,
                         const std::string& from) {
  const auto weights = graph.chunk_weights();
  // As many as make every chunk a whole number of them.
  const auto elements = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::map<LinkId, std::int64_t> by_link;
  for (const plan::Transfer& transfer : graph.transfers()) {
    for (const LinkId link : graph.routes()[transfer.route.index()]) {
      by_link[link] += graph.range(transfer, elements).size();
    }
  }
  std::set<double> shares;
  for (const auto& [link, sum] : by_link) {
    if (topology.link_name(link).starts_with(from)) {
      shares.insert(static_cast<double>(sum) / static_cast<double>(elements));
    }
  }
  return shares;
}

TEST_CASE("racks of hosts of GPUs: an uplink carries 2(k-1)/k of the buffer") {
  const Topology topology = regular(1, 4, 4, 4);
  topology::Router router(topology);
  for (const std::size_t rounds : {1U, 4U, 24U}) {
    const auto graph = make_exchange(level_exchange(topology), Collective::kAllReduce,
                                     {topology, router, {}}, rounds);
    CHECK(graph.transfers().size() == rounds * 64 * 2 * (3 + 3 + 3));
    check_right(graph, topology);
    CHECK(carried(graph, topology, "spine0→") == std::set{1.5});
  }
}

TEST_CASE("pods of racks: their uplinks carry 2(k-1)/k each of what is below them") {
  const Topology topology = regular(4, 2, 3, 2);
  topology::Router router(topology);
  const auto graph =
      make_exchange(level_exchange(topology), Collective::kAllReduce, {topology, router, {}});
  CHECK(graph.transfers().size() == 48 * 2 * (1 + 2 + 1 + 3));
  check_right(graph, topology);
  CHECK(carried(graph, topology, "core→") == std::set{1.5});
  // Half of the buffer for the pod's other racks in each direction, of what is theirs the same for
  // the other pods.
  CHECK(carried(graph, topology, "rack0.0-tor→spine0") == std::set{1.0 + 1.5 / 2});
  // Ranks exchange with those at the same place in other groups.
  for (const plan::Transfer& transfer : graph.transfers()) {
    const auto src = transfer.src.value();
    const auto dst = transfer.dst.value();
    CHECK((src / 2 == dst / 2 || src % 2 == dst % 2));
  }
}

TEST_CASE("sums and copies of an all-reduce take turns in many rounds") {
  const Topology topology = regular(2, 2, 2, 4);
  topology::Router router(topology);
  const auto graph =
      make_exchange(level_exchange(topology), Collective::kAllReduce, {topology, router, {}}, 48);
  const auto first_copy = std::ranges::find_if(
      graph.transfers(), [](const plan::Transfer& t) { return t.op == plan::TransferOp::kCopy; });
  CHECK(4 * std::distance(graph.transfers().begin(), first_copy) < std::ssize(graph.transfers()));
}

TEST_CASE("groups of several sizes share what they carry evenly, and own as much by rank") {
  // Hosts of 2 and 3 GPUs, racks of 1 and 2 hosts: digits of 6, 2 and 2 values.
  const Topology topology = test::pods({{{2}, {3, 2}}});
  topology::Router router(topology);
  const Exchange exchange = level_exchange(topology);
  CHECK(exchange_chunks(exchange) == 6 * 2 * 2);
  for (const Collective what : kAll) {
    const auto graph = make_exchange(exchange, what, {topology, router, {}});
    check_right(graph, topology);
    if (what != Collective::kAllReduce) {
      check_owned_alike(graph, topology.rank_count());
    }
  }
}

TEST_CASE("groups of many sizes do not multiply chunks without end") {
  const Topology topology =
      test::pods({{{1, 2, 3, 4, 5}, {7, 8}, {5, 6, 7}}, {{3}}, {{2, 5, 7}, {8, 1}}});
  topology::Router router(topology);
  const Exchange exchange = level_exchange(topology);
  CHECK(exchange_chunks(exchange) * topology.rank_count() <= std::size_t{1} << 24U);
  check_right(make_exchange(exchange, Collective::kAllReduce, {topology, router, {}}), topology);
}

TEST_CASE("random nestings are right, with codecs too") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Topology topology = test::random_pods(seed);
    topology::Router router(topology);
    for (const auto& [inside, across] :
         {std::pair("none", "none"), std::pair("fp16", "fp16"), std::pair("none", "fp16")}) {
      const bool has_single = std::ranges::any_of(
          ring_of_groups(topology), [](const auto& group) { return group.ranks.size() == 1; });
      if (has_single && std::string_view(inside) != std::string_view(across)) {
        continue;
      }
      CAPTURE(seed, inside, across);
      check_right(make_exchange(level_exchange(topology), Collective::kAllReduce,
                                {topology, router, codecs_of(inside, across)}, 2),
                  topology);
    }
  }
}

/// With one slow NIC; dead ones; unlike NICs on each rail; hosts of several sizes, whose lines
/// share members.
std::vector<Topology> with_uneven_lines() {
  return {test::rails_with_slow_nic(3, 12),
          test::boxes_with_slow_nics(4, {{1, 0, 12}, {2, 0, 5}, {3, 3, 20}}),
          test::boxes_with_slow_nics(6, {{0, 2, 0}, {4, 1, 3}}),
          test::boxes_with_nics({{25, 10, 3}, {25, 10, 3}, {25, 10, 3}}, 3), test::uneven_hosts()};
}

TEST_CASE("along uneven lanes rings are right, and every rank owns as much") {
  for (const Topology& topology : with_uneven_lines()) {
    topology::Router router(topology);
    const std::size_t groups = count_of(topology);
    for (const Collective what : kAll) {
      for (const char* codec : {"none", "fp16"}) {
        const ScheduleRequest request{topology, router, codecs_of(codec, codec)};
        const LineLanes lanes = uneven_lanes(what, request);
        REQUIRE_FALSE(lanes.empty());
        std::vector<GridSides> sides = {{groups}};
        if (groups == 6 && codec == std::string_view("none")) {
          sides.push_back({2, 3});
        }
        for (const GridSides& of : sides) {
          for (const std::size_t rounds : {1, 2, 3, 8}) {
            INFO(topology.name() << ", " << static_cast<int>(what) << " in " << rounds << ", "
                                 << codec);
            const auto graph =
                make_exchange(ring_exchange(topology, of, lanes), what, request, rounds, true);
            check_right(graph, topology);
            if (what != Collective::kAllReduce) {
              check_owned_alike(graph, topology.rank_count());
            }
          }
        }
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
      const auto graph = make_exchange(ring_exchange(topology, {4}, lanes), what, request, 2);
      return plan::alpha_beta(graph, topology).seconds_per_element;
    };
    const double bound = halves * 4.0 * 3 / 4 / (7 * 25e9 + 12e9);
    CHECK(seconds(uneven_lanes(what, request)) >= bound * (1 - 1e-9));
    CHECK(seconds(uneven_lanes(what, request)) <= 1.001 * bound);
    CHECK(seconds({}) == Approx(halves * 4.0 * 3 / 4 / 8 / 12e9));  // each line as much
  }
}

TEST_CASE("between boxes that are alike and between two boxes lanes are even") {
  const auto lanes = [](const Topology& topology) {
    topology::Router router(topology);
    return uneven_lanes(Collective::kAllGather, {topology, router, {}});
  };
  CHECK(lanes(test::boxes(4, 8)).empty());
  CHECK(lanes(test::rails_with_slow_diagonal()).empty());
  CHECK(lanes(test::rails_with_slow_nic(2, 12)).empty());
}

TEST_CASE("of an all-reduce lines carry in proportion to their rates, and none is lent") {
  const Topology topology = test::rails_with_slow_nic(3, 12);
  topology::Router router(topology);
  const LineLanes lanes = uneven_lanes(Collective::kAllReduce, {topology, router, {}});
  REQUIRE(lanes.size() == 8);
  for (std::size_t line = 0; line < lanes.size(); ++line) {
    CHECK(lanes[line].line == line);
    CHECK(lanes[line].owner == line);
    CHECK(lanes[line].weight == Approx(kLaneUnits * 8 * (line == 0 ? 12 : 25) / 187.0).margin(1));
  }
}

TEST_CASE("what exchanges are like is known before they are made") {
  constexpr std::size_t kRounds[] = {1, 2, 4, 8};
  constexpr std::size_t kBothWays[] = {2, 4, 8};
  for (const Topology& topology :
       {test::uneven_hosts(), test::boxes(6, 2), test::clos({4, 2, 2}, 1)}) {
    topology::Router router(topology);
    const ScheduleRequest request{
        .topology = topology, .router = router, .codecs = {}, .most_transfers = 20'000};
    for (const Collective what : kAll) {
      const Exchange ring =
          ring_exchange(topology, {count_of(topology)}, uneven_lanes(what, request));
      for (const auto& forms : {exchange_forms(ring, what, request, kRounds),
                                exchange_forms(ring, what, request, kBothWays, true),
                                exchange_forms(direct_exchange(topology), what, request, kRounds),
                                exchange_forms(level_exchange(topology), what, request, kRounds)}) {
        REQUIRE_FALSE(forms.empty());
        for (const CollectiveForm& form : forms) {
          check_shape(form, topology);
        }
      }
    }
  }
}

TEST_CASE("no more rounds than a request allows, nor more transfers") {
  constexpr std::size_t kRounds[] = {1, 2, 4, 8};
  const Topology topology = test::boxes(3, 2);
  topology::Router router(topology);
  ScheduleRequest request{.topology = topology, .router = router, .codecs = {}};
  const Exchange exchange = direct_exchange(topology);
  const auto count = [&] {
    return exchange_forms(exchange, Collective::kAllReduce, request, kRounds).size();
  };
  CHECK(count() == 4);
  request.most_rounds = 4;
  CHECK(count() == 3);
  request.most_transfers = 2 * exchange_transfers(exchange, Collective::kAllReduce);
  CHECK(count() == 2);
  request.most_transfers = 1;
  CHECK(count() == 0);
}

TEST_CASE("sides of grids have few hops, and are within racks") {
  CHECK(group_grid_sides(test::boxes(16, 8)) == std::vector<GridSides>{{4, 4}, {2, 8}, {2, 2, 4}});
  CHECK(group_grid_sides(test::boxes(15, 8)) == std::vector<GridSides>{{3, 5}});
  CHECK(group_grid_sides(test::h100_128x8()) ==
        std::vector<GridSides>{{8, 16}, {4, 32}, {4, 4, 8}});
  // Rings of six would leave racks of four.
  const Topology racks = test::rail_racks({.racks = 6, .hosts = 4, .gpus = 4});
  CHECK(group_grid_sides(racks) == std::vector<GridSides>{{4, 6}, {2, 12}, {2, 4, 3}});
  CHECK(two_sides(test::boxes(36, 2)) == std::vector<GridSides>{{6, 6}, {3, 12}, {2, 18}});
  // A prime number of groups, or few, have no grid.
  CHECK(group_grid_sides(test::boxes(11, 8)).empty());
  CHECK(group_grid_sides(test::boxes(4, 8)).empty());
}

TEST_CASE("there are no rings of groups without groups, or with codecs that differ by tier") {
  CHECK(refuse_group_rings(test::grid(4, 4, true), {}));
  CHECK(refuse_group_rings(test::boxes(1, 8), {}));
  CHECK(refuse_group_rings(test::boxes(2, 8), codecs_of("none", "fp16")));
  CHECK_FALSE(refuse_group_rings(test::boxes(2, 8), codecs_of("fp16", "fp16")));
}

}  // namespace
}  // namespace rackrail::planner::exchange_test
