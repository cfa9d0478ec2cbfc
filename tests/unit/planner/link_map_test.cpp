#include "planner/replan/link_map.hpp"

#include <catch2/catch.hpp>

#include "planner/replan/replan.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::link_map_test {
namespace {

/// The ways from rank 0 to ranks 1 and 2, with a rate each.
struct Rated {
  topology::Topology topology = test::hosts_with_nics(3, {10, 10});
  plan::TransferGraph graph{"rated", plan::Collective::kAllReduce, 3, {1}};
  RouteId first = add(1, 3_GBps);
  RouteId second = add(2, 4_GBps);

  RouteId add(int dst, Bandwidth rate) {
    topology::Router router(topology);
    const RouteId route = graph.add_route(router.route(Rank(0), Rank(dst)), rate);
    graph.add_transfer({.src = Rank(0), .dst = Rank(dst), .route = route}, {});
    return route;
  }
  /// The last link, which no other way uses.
  LinkId last_of(RouteId route) const { return graph.routes()[route.index()].back(); }
  Rerouted after(const LinkChange& change) const {
    const topology::Topology now = changed_cluster(topology, std::vector{change});
    topology::Router router(now);
    return rerouted(graph, LinkMap(topology.link_count(), std::vector{change}), router);
  }
};

TEST_CASE("ways that stay keep their rates, though a link became slower") {
  const Rated rated;
  const Rerouted result = rated.after({rated.last_of(rated.first), 9_GBps});
  for (const RouteId route : {rated.first, rated.second}) {
    if (result.graph.routes()[route.index()] == rated.graph.routes()[route.index()]) {
      CHECK(result.graph.rate(route) == rated.graph.rate(route));
    } else {
      CHECK(result.graph.rate(route) == Bandwidth());
    }
  }
  CHECK(result.graph.rate(rated.second) == 4_GBps);
}

TEST_CASE(
    "a way that was chosen among equal ones stays where a link of all of them became slower") {
  const topology::Topology topology = test::clos({2, 2}, 2);
  topology::Router router(topology);
  const auto equal = router.equal_routes(Rank(0), Rank(2), 8);
  REQUIRE(equal.size() == 2);
  const auto usual = router.route(Rank(0), Rank(2));
  const topology::Route& other = equal[equal[0] == usual ? 1 : 0];
  plan::TransferGraph graph("chosen", plan::Collective::kAllReduce, 4, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(2), .route = graph.add_route(other)}, {});
  const LinkChange slower{other.front(), 9_GBps};  // of the host, which has no other
  const topology::Topology now = changed_cluster(topology, std::vector{slower});
  topology::Router router_now(now);
  const Rerouted result =
      rerouted(graph, LinkMap(topology.link_count(), std::vector{slower}), router_now);
  CHECK(result.graph.routes()[result.graph.transfers().front().route.index()] == other);
  CHECK(result.routes == 0);
}

TEST_CASE("a way around a lost link has no rate") {
  const Rated rated;
  const Rerouted result = rated.after({rated.last_of(rated.first), std::nullopt});
  CHECK(result.graph.rate(rated.first) == Bandwidth());
  CHECK(result.graph.rate(rated.second) == 4_GBps);
}

}  // namespace
}  // namespace rackrail::planner::link_map_test
