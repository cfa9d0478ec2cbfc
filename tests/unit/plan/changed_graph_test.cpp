#include "plan/changed_graph.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace rackrail::plan::changed_graph_test {
namespace {

/// Rank 0 sends its half to rank 1 over link 4, and back over link 5 once it is there.
TransferGraph there_and_back() {
  TransferGraph graph("test", Collective::kReduceScatter, 2, {3, 1});
  graph.set_owners({Rank(1), Rank(0)});
  Transfer transfer{.src = Rank(0), .dst = Rank(1), .op = TransferOp::kReduce};
  transfer.codec = graph.add_codec(parse_codec("fp16"));
  transfer.route = graph.add_route({LinkId(4)}, Bandwidth(100));
  const TransferId first = graph.add_transfer(transfer, {});
  std::swap(transfer.src, transfer.dst);
  transfer.route = graph.add_route({LinkId(5)});
  graph.add_transfer(transfer, std::array{first});
  graph.add_group(first, 2);
  return graph;
}

TEST_CASE("a graph over other routes sends the same") {
  const TransferGraph graph = there_and_back();
  std::vector<RatedRoute> routes = rated_routes(graph);
  REQUIRE(routes.size() == 3);
  CHECK(routes[1].rate == Bandwidth(100));
  routes[1] = {{LinkId(6), LinkId(7)}, Bandwidth(50)};
  routes[2] = {};  // none is pinned
  const TransferGraph changed = with_routes(graph, routes);
  CHECK(changed.name() == "test");
  CHECK(changed.collective() == Collective::kReduceScatter);
  CHECK(changed.rank_count() == 2);
  CHECK(changed.chunk_weights()[0] == 3);
  CHECK(changed.owners()[0] == Rank(1));
  REQUIRE(changed.transfers().size() == 2);
  const Transfer& first = changed.transfers()[0];
  CHECK(first.op == TransferOp::kReduce);
  CHECK(changed.codecs()[first.codec] == graph.codecs()[1]);
  CHECK(changed.routes()[first.route.index()] == std::vector{LinkId(6), LinkId(7)});
  CHECK(changed.rate(first.route) == Bandwidth(50));
  CHECK(changed.transfers()[1].route == RouteId(0));
  CHECK(changed.dependencies(TransferId(1))[0] == TransferId(0));
  REQUIRE(changed.groups().size() == 1);
  CHECK(changed.groups()[0].count == 2);
}

TEST_CASE("routes are chosen transfer by transfer") {
  const TransferGraph graph = there_and_back();
  std::vector<RatedRoute> routes = rated_routes(graph);
  routes.push_back({{LinkId(8)}, Bandwidth(70)});
  const TransferGraph changed =
      with_transfers_over(graph, routes, std::array<std::uint32_t, 2>{3, 2});
  REQUIRE(changed.transfers().size() == 2);
  CHECK(changed.routes().size() == 3);  // with none that nothing takes
  const RouteId first = changed.transfers()[0].route;
  CHECK(changed.routes()[first.index()] == std::vector{LinkId(8)});
  CHECK(changed.rate(first) == Bandwidth(70));
  CHECK(changed.routes()[changed.transfers()[1].route.index()] == std::vector{LinkId(5)});
  CHECK(changed.codecs()[changed.transfers()[0].codec] == graph.codecs()[1]);
  CHECK(changed.owners()[0] == Rank(1));
  CHECK(changed.dependencies(TransferId(1))[0] == TransferId(0));
  CHECK(changed.groups().size() == 1);
  CHECK_THROWS_AS(with_transfers_over(graph, routes, std::array<std::uint32_t, 1>{3}), PlanError);
}

TEST_CASE("codecs are chosen transfer by transfer") {
  const TransferGraph graph = there_and_back();
  const std::array codecs{parse_codec("int8"), Codec{}};
  const TransferGraph changed = with_codecs_and_routes(
      graph, codecs,
      [](const Transfer& transfer) -> std::uint8_t { return transfer.src == Rank(0) ? 0 : 1; },
      rated_routes(graph));
  CHECK(changed.codecs()[changed.transfers()[0].codec] == codecs[0]);
  CHECK(changed.codecs()[changed.transfers()[1].codec] == Codec{});
  CHECK(changed.rate(changed.transfers()[0].route) == Bandwidth(100));
}

TEST_CASE("each route of a graph needs one in its place") {
  const TransferGraph graph = there_and_back();
  CHECK_THROWS_AS(with_routes(graph, {{}, {{LinkId(1)}, {}}}), PlanError);
  CHECK_THROWS_AS(with_routes(graph, {{}, {{LinkId(1)}, Bandwidth(-1)}, {}}), PlanError);
}

}  // namespace
}  // namespace rackrail::plan::changed_graph_test
