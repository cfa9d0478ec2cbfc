// Forests on random graphs: they reach the bound, which is found by trying all cuts one by one.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "base/random.hpp"
#include "plan/verifier.hpp"
#include "planner/forest/forest.hpp"
#include "planner/forest/forest_schedule.hpp"
#include "planner/forest/joint_forest.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::uint64_t kSeed = 20261121;
constexpr std::int64_t kUnit = 1'000'000;

/// Ranks and switches, every cable as wide in both directions: a random tree, and more cables.
Topology random_cables(std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto below = [&](std::size_t limit) { return random_bits(seed, counter++) % limit; };
  Topology topology("random");
  const std::size_t ranks = 2 + below(5);
  const std::size_t switches = below(4);
  for (std::size_t v = 0; v < ranks + switches; ++v) {
    const bool is_rank = v < ranks;
    topology.add_node(
        {.name = fmt::format("v{}", v), .kind = is_rank ? NodeKind::kGpu : NodeKind::kSwitch});
    if (is_rank) topology.add_rank(NodeId(v));
  }
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

/// Bytes of an all-gather's result per second, times 1/n: the worst of all cuts.
double rate_of_worst_cut(const Topology& topology) {
  double worst = 1e300;
  for (std::uint32_t set = 1; set + 1 < (1U << topology.node_count()); ++set) {
    const auto has = [set](NodeId v) { return (set >> v.value() & 1U) != 0; };
    std::int64_t leaving = 0;
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const topology::Link& link = topology.link(LinkId(l));
      if (has(link.from) && !has(link.to)) leaving += link.bandwidth.bytes_per_second();
    }
    std::size_t ranks = 0;
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      ranks += has(topology.node_of(Rank(r))) ? 1 : 0;
    }
    if (ranks > 0 && ranks < topology.rank_count()) {
      worst = std::min(worst, static_cast<double>(leaving) / static_cast<double>(ranks));
    }
  }
  return worst;
}

/// Units of trees over each link, counted here once more.
double rate_of_worst_link(const Topology& topology, const Forest& forest) {
  std::vector<std::int64_t> load(topology.link_count());
  for (const Tree& tree : forest.trees) {
    for (const TreeArc& arc : tree.arcs) {
      for (const LinkId link : forest.routes[arc.route]) load[link.index()] += tree.units;
    }
  }
  double worst = 1e300;
  for (std::size_t l = 0; l < load.size(); ++l) {
    if (load[l] > 0) {
      const auto bandwidth =
          static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
      worst = std::min(worst, bandwidth * static_cast<double>(forest.trees_per_rank) /
                                  static_cast<double>(load[l]));
    }
  }
  return worst;
}

TEST_CASE("forests reach the bound of all cuts on random cables") {
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::uint64_t seed = kSeed + i;
    INFO("seed " << seed);
    const Topology topology = random_cables(seed);
    const ForestOptions all{.most_trees_per_rank = 1000, .good_enough = 1 - 1e-9};
    for (const bool is_reversed : {false, true}) {
      const Forest forest = make_forest(topology, all, is_reversed);
      const std::vector<std::string> problems = problems_of(forest, topology, is_reversed);
      INFO(fmt::format("{}", fmt::join(problems, "\n")));
      CHECK(problems.empty());
      CHECK(rate_of_worst_link(topology, forest) ==
            Approx(rate_of_worst_cut(topology)).epsilon(1e-6));
    }
  }
}

/// Units of both halves over each link, which they share; of the whole buffer.
double rate_of_worst_link(const Topology& topology, const AllReduceForests& forests) {
  std::vector<double> load(topology.link_count());
  for (const Forest* half : {&forests.reduction, &forests.broadcast}) {
    double units = 0;
    for (const Tree& tree : half->trees) {
      units += static_cast<double>(tree.units);
    }
    for (const Tree& tree : half->trees) {
      for (const TreeArc& arc : tree.arcs) {
        for (const LinkId link : half->routes[arc.route]) {
          load[link.index()] += static_cast<double>(tree.units) / units;
        }
      }
    }
  }
  double worst = 1e300;
  for (std::size_t l = 0; l < load.size(); ++l) {
    if (load[l] > 0) {
      const auto bandwidth =
          static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
      worst = std::min(worst, bandwidth / load[l]);
    }
  }
  return worst;
}

TEST_CASE("all-reduce forests reach 98 % of the joint optimum on random cables") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  double least = 1;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t seed = kSeed + i;
    INFO("seed " << seed);
    const Topology topology = random_cables(seed);
    const auto optimum =
        static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
    const AllReduceForests forests =
        make_allreduce_forests(topology, {.most_trees_per_rank = 1000, .good_enough = 1 - 1e-9});
    const double reached = rate_of_worst_link(topology, forests);
    CHECK(reached <= optimum * (1 + 1e-5));
    CHECK(reached >= 0.98 * optimum);
    least = std::min(least, reached / optimum);
  }
  INFO("the least share of the optimum is " << least);
  CHECK(least >= 0.98);
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
}  // namespace rackrail::planner
