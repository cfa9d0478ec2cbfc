#include "planner/replan/link_map.hpp"

#include <catch2/catch.hpp>

#include "tests/support/clusters.hpp"

namespace rackrail::planner {
namespace {

TEST_CASE("routes that did not change keep their rates, the others lose them") {
  const topology::Topology topology = test::two_racks();
  topology::Router router(topology);
  plan::TransferGraph graph("rated", plan::Collective::kAllReduce, topology.rank_count(), {1});
  const auto add = [&](int src, int dst) {
    const RouteId route = graph.add_route(router.route(Rank(src), Rank(dst)), 3_GBps);
    graph.add_transfer({.src = Rank(src), .dst = Rank(dst), .route = route}, {});
    return route;
  };
  const RouteId inside = add(0, 1);
  const RouteId across = add(0, 2);
  LinkId uplink;  // of the way across alone
  for (const LinkId link : graph.routes()[across.index()]) {
    const auto& other = graph.routes()[inside.index()];
    if (std::find(other.begin(), other.end(), link) == other.end()) {
      uplink = link;
      break;
    }
  }
  const std::vector<LinkChange> changes = {{uplink, 1_GBps}};
  const LinkMap links(topology.link_count(), changes);
  const Rerouted result = rerouted(graph, links, router);
  CHECK(result.graph.rate(inside) == 3_GBps);
  CHECK(result.graph.rate(across) == Bandwidth());
}

}  // namespace
}  // namespace rackrail::planner
