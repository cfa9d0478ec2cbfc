// What is given up for the work that links have left: never what would have ended in time, and soon
// what would not.
#include "sim/work_left.hpp"

#include <catch2/catch.hpp>
#include <optional>

#include "plan/alpha_beta.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/engine.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::sim::work_left_test {
namespace {

constexpr std::int64_t kSlice = 1 << 16;

plan::TransferGraph all_reduce(const char* family, const topology::Topology& topology,
                               const planner::TierCodecs& codecs = {}) {
  topology::Router router(topology);
  return planner::schedule_family(family).all_reduce({topology, router, codecs});
}

std::shared_ptr<const GraphIndex> index_of(const plan::TransferGraph& graph, std::int64_t elements,
                                           const topology::Topology& topology) {
  Routing routing(topology, Multipath::kPinned);
  return index_graph(graph, elements, kSlice, routing);
}

TEST_CASE("what links have left is the bound of a schedule, and falls as messages begin") {
  const topology::Topology topology = GENERATE(test::two_racks(), test::uneven_star());
  const plan::Codec codec{.kind = GENERATE(plan::CodecKind::kNone, plan::CodecKind::kFp16)};
  const plan::TransferGraph graph = all_reduce("ring", topology, {codec, codec});
  constexpr std::int64_t kElements = 1 << 22;
  const auto index = index_of(graph, kElements, topology);
  WorkLeft left(topology, 0);
  CHECK(left.at_least() == 0);
  left.add(*index);
  const Duration bound = plan::alpha_beta(graph, topology).at_least(kElements);
  CHECK(Duration(left.at_least()) / bound == Approx(1).epsilon(1e-3));
  // More than a ring sends over any route: twice the buffer.
  for (const RouteUse& route : index->routes) {
    left.begin(route, 2 * 4 * kElements);
  }
  CHECK(left.at_least() == 0);
}

/// One collective on all ranks; what run_until() says, and the events that it took.
struct Watched {
  bool has_ended = false;
  std::uint64_t events = 0;
  Time time = 0;
};
Watched run_until(const plan::TransferGraph& graph, std::int64_t elements,
                  const topology::Topology& topology, double tolerance, Time limit) {
  SimulationOptions options;
  options.tolerance = tolerance;
  Engine engine(topology, options);
  const auto index = index_of(graph, elements, topology);
  const std::uint32_t run = engine.add_run(index, graph.name());
  engine.keep({&run, 1});
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    engine.add_step(Rank(r), {{TaskKind::kForward, Duration(), {run}}}, {run}, Duration());
  }
  const bool has_ended = engine.run_until(limit);
  return {has_ended, engine.events(), engine.run_done(run)};
}

TEST_CASE("what ends just below a limit is never given up") {
  const topology::Topology topology =
      GENERATE(test::two_racks(), test::uneven_star(), test::clos({2, 3, 1}, 2), test::boxes(2, 2));
  const double tolerance = GENERATE(0.0, 0.01);
  for (const auto& family : planner::schedule_families()) {
    if (family->refusal(topology, {}).has_value()) {
      continue;
    }
    topology::Router router(topology);
    const plan::TransferGraph graph = family->all_reduce({topology, router, {}});
    for (const std::int64_t elements : {100, 100'000, 5'000'000}) {
      CAPTURE(topology.name(), family->name(), elements, tolerance);
      const Watched whole = run_until(graph, elements, topology, tolerance, INT64_MAX);
      REQUIRE(whole.has_ended);
      const Watched limited = run_until(graph, elements, topology, tolerance, whole.time + 1);
      CHECK(limited.has_ended);
      CHECK(limited.time == whole.time);
      CHECK_FALSE(run_until(graph, elements, topology, tolerance, whole.time).has_ended);
    }
  }
}

TEST_CASE("nor is it where very many flows may end early", "[slow]") {
  const topology::Topology topology = test::clos({32, 40, 24}, 4);
  constexpr double kTolerance = 0.01;
  for (const char* family : {"ring", "parameter-server", "hierarchical"}) {
    const plan::TransferGraph graph = all_reduce(family, topology);
    for (const std::int64_t elements : {100'000, 5'000'000}) {
      CAPTURE(family, elements);
      const Watched whole = run_until(graph, elements, topology, kTolerance, INT64_MAX);
      REQUIRE(whole.has_ended);
      CHECK(run_until(graph, elements, topology, kTolerance, whole.time + 1).has_ended);
    }
  }
}

TEST_CASE("what cannot end in time is given up long before the time is over") {
  const topology::Topology topology = test::boxes(2, 2);
  const plan::TransferGraph graph = all_reduce("ring", topology);
  constexpr std::int64_t kElements = 50'000'000;
  const Watched whole = run_until(graph, kElements, topology, 0, INT64_MAX);
  const Duration bound = plan::alpha_beta(graph, topology).at_least(kElements);
  REQUIRE(bound > scaled(Duration(whole.time), 0.9));
  // By the time alone, seven tenths of the events would have been handled.
  const Watched limited = run_until(graph, kElements, topology, 0, whole.time * 7 / 10);
  CHECK_FALSE(limited.has_ended);
  CHECK(limited.events < whole.events / 20);
}

}  // namespace
}  // namespace rackrail::sim::work_left_test
