// Forests on random graphs: they reach the bound, which is found by trying all cuts one by one.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "base/random.hpp"
#include "plan/verifier.hpp"
#include "planner/packing/forest.hpp"
#include "planner/packing/joint_forest.hpp"
#include "planner/pipeline/forest_schedule.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/tree_loads.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::forest_property_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::uint64_t kSeed = 20261121;
constexpr std::int64_t kUnit = 1'000'000;

Topology without_links(std::size_t ranks, std::size_t switches) {
  Topology topology("random");
  for (std::size_t v = 0; v < ranks + switches; ++v) {
    const bool is_rank = v < ranks;
    topology.add_node(
        {.name = fmt::format("v{}", v), .kind = is_rank ? NodeKind::kGpu : NodeKind::kSwitch});
    if (is_rank) topology.add_rank(NodeId(v));
  }
  return topology;
}

/// Ranks and switches, every cable as wide in both directions: a random tree, and more cables.
Topology random_cables(std::uint64_t seed, std::size_t fewest_ranks, std::size_t sizes) {
  std::uint64_t counter = 0;
  const auto below = [&](std::size_t limit) { return random_bits(seed, counter++) % limit; };
  const std::size_t ranks = fewest_ranks + below(sizes);
  const std::size_t switches = below(4);
  Topology topology = without_links(ranks, switches);
  const auto cable = [&](std::size_t a, std::size_t b) {
    topology.add_duplex_link(
        {.from = NodeId(a),
         .to = NodeId(b),
         .bandwidth = Bandwidth(kUnit * (1 + static_cast<std::int64_t>(below(6))))});
  };
  for (std::size_t v = 1; v < ranks + switches; ++v) cable(v, below(v));
  for (std::size_t more = below(2 * ranks + 1); more > 0; --more) {
    const std::size_t a = below(ranks + switches);
    const std::size_t b = below(ranks + switches);
    if (a != b) cable(a, b);
  }
  return topology;
}

Topology random_cables(std::uint64_t seed) { return random_cables(seed, 2, 5); }

/// Links of one direction each: circles, of which the first joins all, so that switches send what
/// they receive, and links between ranks, which need not.
Topology random_circles(std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto below = [&](std::size_t limit) { return random_bits(seed, counter++) % limit; };
  const std::size_t ranks = 2 + below(5);
  const std::size_t switches = below(4);
  Topology topology = without_links(ranks, switches);
  const auto add = [&](std::size_t from, std::size_t to, std::int64_t units) {
    topology.add_link(
        {.from = NodeId(from), .to = NodeId(to), .bandwidth = Bandwidth(kUnit * units)});
  };
  const std::size_t circles = 1 + below(4);
  for (std::size_t circle = 0; circle < circles; ++circle) {
    std::vector<std::size_t> members(ranks + switches);
    std::iota(members.begin(), members.end(), std::size_t{0});
    for (std::size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[below(i)]);
    if (circle > 0) members.resize(2 + below(members.size() - 1));
    const auto units = static_cast<std::int64_t>(1 + below(6));
    for (std::size_t i = 0; i < members.size(); ++i) {
      add(members[i], members[(i + 1) % members.size()], units);
    }
  }
  for (std::size_t more = below(ranks + 1); more > 0; --more) {
    const std::size_t from = below(ranks);
    const std::size_t to = below(ranks);
    if (from != to) add(from, to, static_cast<std::int64_t>(1 + below(6)));
  }
  return topology;
}

/// Links of one direction each, also at switches, which then receive more than they can send, or
/// less: a thin circle that joins all, and wider links.
Topology random_one_ways(std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto below = [&](std::size_t limit) { return random_bits(seed, counter++) % limit; };
  const std::size_t ranks = 2 + below(5);
  const std::size_t vertices = ranks + 1 + below(4);
  Topology topology = without_links(ranks, vertices - ranks);
  const auto add = [&](std::size_t from, std::size_t to, std::size_t units) {
    topology.add_link({.from = NodeId(from),
                       .to = NodeId(to),
                       .bandwidth = Bandwidth(kUnit * static_cast<std::int64_t>(units))});
  };
  for (std::size_t v = 0; v < vertices; ++v) add(v, (v + 1) % vertices, 1);
  for (std::size_t more = vertices + below(2 * vertices); more > 0; --more) {
    const std::size_t from = below(vertices);
    const std::size_t to = below(vertices);
    if (from != to) add(from, to, 1 + below(6));
  }
  return topology;
}

/// Bytes of an all-gather's result per second by the worst of all cuts. Of a reduce-scatter's
/// buffer, if reversed.
double rate_of_worst_cut(const Topology& topology, bool is_reversed) {
  double worst = 1e300;
  for (std::uint32_t set = 1; set + 1 < (1U << topology.node_count()); ++set) {
    const auto has = [set](NodeId v) { return (set >> v.value() & 1U) != 0; };
    std::int64_t leaving = 0;
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const topology::Link& link = topology.link(LinkId(l));
      const auto [from, to] =
          is_reversed ? std::pair(link.to, link.from) : std::pair(link.from, link.to);
      if (has(from) && !has(to)) leaving += link.bandwidth.bytes_per_second();
    }
    std::size_t ranks = 0;
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      ranks += has(topology.node_of(Rank(r))) ? 1 : 0;
    }
    if (ranks > 0 && ranks < topology.rank_count()) {
      worst = std::min(worst, static_cast<double>(leaving) / static_cast<double>(ranks));
    }
  }
  return worst * static_cast<double>(topology.rank_count());
}

TEST_CASE("forests reach the bound of all cuts on random cables and circles") {
  for (std::uint64_t i = 0; i < 800; ++i) {
    const std::uint64_t seed = kSeed + i;
    INFO("seed " << seed);
    const Topology topology = i % 2 == 0 ? random_cables(seed) : random_circles(seed);
    const ForestOptions all{.most_trees_per_rank = 1000, .good_enough = 1 - 1e-9};
    for (const bool is_reversed : {false, true}) {
      const Forest forest = make_forest(topology, all, is_reversed);
      const std::vector<std::string> problems = problems_of(forest, topology, is_reversed);
      INFO(fmt::format("{}", fmt::join(problems, "\n")));
      CHECK(problems.empty());
      CHECK(test::rate_of_worst_link(topology, forest) ==
            Approx(rate_of_worst_cut(topology, is_reversed)).epsilon(1e-6));
    }
  }
}

/// Three to five racks of up to ten hosts each, under up to three spines, all links alike.
Topology random_racks(std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto below = [&](std::size_t limit) { return random_bits(seed, counter++) % limit; };
  std::vector<std::size_t> hosts(3 + below(3));
  for (std::size_t& count : hosts) count = 2 + below(9);
  const std::size_t ranks = std::accumulate(hosts.begin(), hosts.end(), std::size_t{0});
  const std::size_t spines = 1 + below(3);
  Topology topology = without_links(ranks, hosts.size() + spines);
  const auto cable = [&](std::size_t a, std::size_t b, std::size_t units) {
    topology.add_duplex_link({.from = NodeId(a),
                              .to = NodeId(b),
                              .bandwidth = Bandwidth(kUnit * static_cast<std::int64_t>(units))});
  };
  std::size_t rank = 0;
  for (std::size_t rack = 0; rack < hosts.size(); ++rack) {
    for (std::size_t host = 0; host < hosts[rack]; ++host) cable(rank++, ranks + rack, 6);
    for (std::size_t spine = 0; spine < spines; ++spine) {
      cable(ranks + rack, ranks + hosts.size() + spine, 6);
    }
  }
  return topology;
}

TEST_CASE("trees keep 98 % of the bound of random racks") {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t seed = kSeed + i;
    const Topology topology = random_racks(seed);
    for (const bool is_reversed : {false, true}) {
      INFO("seed " << seed << (is_reversed ? ", reversed" : ""));
      const Forest forest = make_forest(topology, {.most_trees_per_rank = 16}, is_reversed);
      CHECK(problems_of(forest, topology, is_reversed).empty());
      const auto bound = is_reversed ? topology::reducescatter_bound(topology)
                                     : topology::allgather_bound(topology);
      CHECK(test::rate_of_worst_link(topology, forest) >=
            0.98 * static_cast<double>(bound.algbw.bytes_per_second()));
    }
  }
}

TEST_CASE("forests reach what switches can pass on of what they receive") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  const ForestOptions all{.most_trees_per_rank = 300, .good_enough = 0.999};
  int beyond_cuts = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::uint64_t seed = kSeed + i;
    INFO("seed " << seed);
    const Topology topology = random_one_ways(seed);
    for (const bool is_reversed : {false, true}) {
      const auto optimum = is_reversed ? topology::reducescatter_optimum(topology)
                                       : topology::allgather_optimum(topology);
      beyond_cuts += optimum.reason.empty() ? 0 : 1;
      const Forest forest = make_forest(topology, all, is_reversed);
      CHECK(problems_of(forest, topology, is_reversed).empty());
      const double reached = test::rate_of_worst_link(topology, forest) /
                             static_cast<double>(optimum.algbw.bytes_per_second());
      CHECK(reached >= 0.999);
      CHECK(reached <= 1 + 1e-5);
    }
  }
  CHECK(beyond_cuts > 50);
}

TEST_CASE("all-reduce forests reach 98 % of the joint optimum on random graphs") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  const auto [kind, graph] = GENERATE(table<std::string, Topology (*)(std::uint64_t)>(
      {{"cables", random_cables}, {"circles", random_circles}, {"one ways", random_one_ways}}));
  double least = 1;
  int uneven = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t seed = kSeed + i;
    INFO(kind << ", seed " << seed);
    const Topology topology = graph(seed);
    const auto optimum =
        static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
    const AllReduceForests forests =
        make_allreduce_forests(topology, {.most_trees_per_rank = 1000, .good_enough = 1 - 1e-9});
    CHECK(test::do_trees_span(topology, forests.reduction, true));
    CHECK(test::do_trees_span(topology, forests.broadcast, false));
    CHECK(test::do_roots_agree(topology, forests));
    const double reached = test::rate_of_worst_link(topology, forests);
    CHECK(reached <= optimum * (1 + 1e-5));
    CHECK(reached >= 0.98 * optimum);
    least = std::min(least, reached / optimum);
    const auto halves = static_cast<double>(rate_of_halves(topology).bytes_per_second());
    uneven += halves < 0.98 * optimum ? 1 : 0;
  }
  INFO(kind << ": the least share of the optimum is " << least);
  CHECK(least >= 0.98);
  // Else a reduce-scatter and then an all-gather would do.
  CHECK(uneven > 10);
}

/// More than 64 ranks: a grid whose cables have unlike rates, some in one direction only, and some
/// of which are not there; or hosts with unlike NICs under unlike uplinks of a few racks.
Topology random_of_many(std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto below = [&](std::size_t limit) { return random_bits(seed, counter++) % limit; };
  const auto rate = [](std::size_t units) {
    return Bandwidth(kUnit * static_cast<std::int64_t>(units));
  };
  if (seed % 2 == 0) {
    const std::size_t rows = 6 + below(4);
    const std::size_t columns = 66 / rows + 1 + below(4);
    Topology topology = without_links(rows * columns, 0);
    const auto cable = [&](std::size_t a, std::size_t b, bool may_be_missing) {
      if (may_be_missing && below(12) == 0) return;
      const std::size_t units = below(8) == 0 ? 2 + below(6) : 8;
      const std::size_t back = below(24) == 0 ? 4 : units;
      topology.add_link({.from = NodeId(a), .to = NodeId(b), .bandwidth = rate(units)});
      topology.add_link({.from = NodeId(b), .to = NodeId(a), .bandwidth = rate(back)});
    };
    for (std::size_t v = 0; v < rows * columns; ++v) {
      if (v + columns < rows * columns) cable(v, v + columns, v % columns != 0);
      if ((v + 1) % columns != 0) cable(v, v + 1, false);
    }
    return topology;
  }
  const std::size_t racks = 2 + below(4);
  const std::size_t ranks = 65 + below(30);
  Topology topology = without_links(ranks, racks + 1);
  for (std::size_t r = 0; r < ranks; ++r) {
    topology.add_duplex_link(
        {.from = NodeId(r), .to = NodeId(ranks + r % racks), .bandwidth = rate(2 + below(10))});
  }
  for (std::size_t rack = 0; rack < racks; ++rack) {
    topology.add_duplex_link({.from = NodeId(ranks + rack),
                              .to = NodeId(ranks + racks),
                              .bandwidth = rate(4 + below(20))});
  }
  return topology;
}

TEST_CASE("all-reduce forests reach 98 % of the joint optimum among many unlike ranks", "[slow]") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  int settled = 0;
  for (std::uint64_t seed = kSeed; seed < kSeed + 16; ++seed) {
    INFO("seed " << seed);
    const Topology topology = random_of_many(seed);
    const auto optimum =
        static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
    const AllReduceForests forests = make_allreduce_forests(topology);
    CHECK(test::do_trees_span(topology, forests.reduction, true));
    CHECK(test::do_trees_span(topology, forests.broadcast, false));
    CHECK(test::do_roots_agree(topology, forests));
    const double reached = test::rate_of_worst_link(topology, forests);
    CHECK(reached <= optimum * (1 + 1e-5));
    CHECK(reached >= 0.98 * optimum);
    settled += settled_forests(topology).empty() ? 0 : 1;
  }
  CHECK(settled >= 8);
}

TEST_CASE("schedules along forests on random cables are right") {
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::uint64_t seed = kSeed + i;
    INFO("seed " << seed);
    const Topology topology = random_cables(seed);
    topology::Router router(topology);
    const ScheduleRequest request{topology, router, {}};
    const Forest broadcast = make_forest(topology);
    const Forest reduction = make_forest(topology, {}, true);
    const std::optional<Forest> mirror = mirrored(broadcast, topology);
    REQUIRE(mirror.has_value());
    CHECK(problems_of(*mirror, topology, true).empty());
    for (const plan::TransferGraph& graph :
         {all_gather_along(broadcast, request, 1), reduce_scatter_along(reduction, request, 3),
          all_reduce_along(reduction, broadcast, request, 2),
          all_reduce_along(*mirror, broadcast, request, 1)}) {
      const plan::VerifyReport report = plan::verify(graph, &topology);
      INFO(fmt::format("{}", fmt::join(report.problems, "\n")));
      CHECK(report.ok());
    }
  }
}

}  // namespace
}  // namespace rackrail::planner::forest_property_test
