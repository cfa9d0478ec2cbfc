#include "planner/pipeline/balanced_routes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::balanced_routes_test {
namespace {

using topology::Topology;

/// Two racks of so many hosts with 10 each, under ToRs with as many uplinks of 10.
Topology two_racks(int hosts, int uplinks) { return test::clos({hosts, hosts}, uplinks); }

/// Every host of the first rack sends its chunk to one of the second, in so many transfers.
plan::TransferGraph crossing(const Topology& topology, topology::Router& router,
                             std::size_t transfers, std::vector<RoutedPair>& pairs) {
  const std::size_t hosts = topology.rank_count() / 2;
  plan::TransferGraph graph("test", plan::Collective::kAllReduce, topology.rank_count(),
                            std::vector<std::uint32_t>(hosts * transfers, 1));
  for (std::size_t h = 0; h < hosts; ++h) {
    const Rank src(h);
    const Rank dst(hosts + h);
    pairs.push_back({src, dst, graph.add_route(router.route(src, dst))});
    for (std::size_t t = 0; t < transfers; ++t) {
      graph.add_transfer({.src = src,
                          .dst = dst,
                          .chunk_begin = static_cast<std::uint32_t>(h * transfers + t),
                          .chunk_count = 1,
                          .op = plan::TransferOp::kReduce,
                          .codec = 0,
                          .route = pairs.back().route},
                         {});
    }
  }
  return graph;
}

/// What the fullest link carries, in hosts' chunks.
double fullest(const plan::TransferGraph& graph, const Topology& topology, std::size_t hosts) {
  double most = 0;
  for (const plan::LinkLoad& load : plan::link_loads(graph, topology)) {
    const auto rate = static_cast<double>(topology.link(load.link).bandwidth.bytes_per_second());
    most = std::max(most, load.seconds_per_element * rate / 4 * static_cast<double>(hosts));
  }
  return most;
}

std::vector<std::vector<LinkId>> routes_of(const plan::TransferGraph& graph) {
  std::vector<std::vector<LinkId>> routes;
  for (const plan::Transfer& transfer : graph.transfers()) {
    routes.push_back(graph.routes()[transfer.route.index()]);
  }
  return routes;
}

TEST_CASE("pairs that a hash puts on one cable get one each") {
  const Topology topology = two_racks(4, 4);
  topology::Router router(topology);
  std::vector<RoutedPair> pairs;
  const plan::TransferGraph graph = crossing(topology, router, 1, pairs);
  REQUIRE(fullest(graph, topology, 4) >= 1.99);
  const plan::TransferGraph balanced = with_balanced_routes(graph, pairs, topology, router);
  CHECK(fullest(balanced, topology, 4) == Approx(1));
  REQUIRE(balanced.transfers().size() == graph.transfers().size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& route = balanced.routes()[balanced.transfers()[i].route.index()];
    CHECK(topology.link(route.front()).from == topology.node_of(pairs[i].src));
    CHECK(topology.link(route.back()).to == topology.node_of(pairs[i].dst));
    CHECK(balanced.transfers()[i].chunk_begin == graph.transfers()[i].chunk_begin);
  }
  CHECK(routes_of(balanced) == routes_of(with_balanced_routes(graph, pairs, topology, router)));
}

TEST_CASE("where whole pairs fit no cable, transfers of a pair take several") {
  const Topology topology = two_racks(6, 4);
  topology::Router router(topology);
  std::vector<RoutedPair> pairs;
  const plan::TransferGraph graph = crossing(topology, router, 8, pairs);
  const plan::TransferGraph balanced = with_balanced_routes(graph, pairs, topology, router);
  CHECK(fullest(balanced, topology, 6) == Approx(1.5));
  // A pair alone is one flow.
  pairs.clear();
  const plan::TransferGraph whole = crossing(topology, router, 1, pairs);
  CHECK(fullest(with_balanced_routes(whole, pairs, topology, router), topology, 6) == Approx(2));
}

TEST_CASE("what waits for another link keeps its routes") {
  // Each host sends to all others, so that its own cable is the fullest.
  const Topology topology = two_racks(4, 4);
  topology::Router router(topology);
  std::vector<RoutedPair> pairs;
  plan::TransferGraph graph = crossing(topology, router, 1, pairs);
  for (std::size_t h = 1; h < 4; ++h) {
    const RouteId inside = graph.add_route(router.route(Rank(0), Rank(h)));
    pairs.push_back({Rank(0), Rank(h), inside});
    graph.add_transfer({.src = Rank(0), .dst = Rank(h), .chunk_begin = 0, .route = inside}, {});
  }
  CHECK(routes_of(with_balanced_routes(graph, pairs, topology, router)) == routes_of(graph));
}

TEST_CASE("hierarchical all-reduces under oversubscribed spines wait for hosts, not for a spine") {
  const Topology topology = test::rail_racks({});
  topology::Router router(topology);
  const auto graphs = schedule_family("hierarchical").all_reduces({topology, router, {}});
  const double bound =
      4 / static_cast<double>(topology::allreduce_bound(topology).algbw.bytes_per_second());
  double least = 1e300;
  for (const plan::TransferGraph& graph : graphs) {
    CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
    least = std::min(least, plan::alpha_beta(graph, topology).seconds_per_element);
  }
  CHECK(least == Approx(bound).epsilon(1e-3));  // 2.96 times as much by a hash
}

}  // namespace
}  // namespace rackrail::planner::balanced_routes_test
