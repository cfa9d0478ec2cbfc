#include "plan/transfer_graph.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"

namespace rackrail::plan::transfer_graph_test {
namespace {

TransferGraph two_ranks(std::vector<std::uint32_t> weights = {1, 1}) {
  return {"test", Collective::kAllReduce, 2, std::move(weights)};
}

TEST_CASE("chunks tile the buffer in proportion to their weights") {
  const TransferGraph graph = two_ranks({1, 2, 0, 1});
  CHECK(graph.range(0, 1, 400).size() == 100);
  CHECK(graph.range(1, 1, 400).begin == 100);
  CHECK(graph.range(1, 1, 400).end == 300);
  CHECK(graph.range(2, 1, 400).size() == 0);
  CHECK(graph.range(0, 4, 400).size() == 400);
  CHECK(graph.range(1, 3, 400).size() == 300);
}

TEST_CASE("chunk ranges meet exactly and are at most one element from their share") {
  const std::uint64_t seed = 3;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> weights(1 + random() % 9);
    std::uint64_t sum = 0;
    for (auto& weight : weights) {
      weight = static_cast<std::uint32_t>(random() % 5);
      sum += weight;
    }
    weights.front() += 1;
    sum += 1;
    const TransferGraph graph("random", Collective::kAllReduce, 2, weights);
    const auto elements = static_cast<std::int64_t>(random() % 40);
    std::int64_t end = 0;
    for (std::uint32_t chunk = 0; chunk < weights.size(); ++chunk) {
      const ElementRange range = graph.range(chunk, 1, elements);
      REQUIRE(range.begin == end);
      REQUIRE(range.size() >= 0);
      const double share =
          static_cast<double>(elements) * weights[chunk] / static_cast<double>(sum);
      REQUIRE(std::abs(static_cast<double>(range.size()) - share) < 1.0);
      end = range.end;
    }
    REQUIRE(end == elements);
  }
}

TEST_CASE("the largest weights and buffers do not overflow") {
  const TransferGraph graph = two_ranks({0xffffffffU, 0xffffffffU});
  const std::int64_t elements = std::int64_t{1} << 62U;
  CHECK(graph.range(1, 1, elements).begin == elements / 2);
  CHECK(graph.range(1, 1, elements).end == elements);
}

TEST_CASE("slices cover a range without gaps; only the last is shorter") {
  const ElementRange range{.begin = 5, .end = 5 + 2500};
  REQUIRE(slice_count(range, 1024) == 3);
  CHECK(slice(range, 1024, 0).begin == 5);
  CHECK(slice(range, 1024, 1).begin == 5 + 1024);
  CHECK(slice(range, 1024, 2).begin == 5 + 2048);
  CHECK(slice(range, 1024, 2).end == 5 + 2500);
  CHECK(slice_count({7, 7}, 1024) == 0);
  CHECK(slice_count({0, 1024}, 1024) == 1);
  CHECK(slice_count({0, 1025}, 1024) == 2);
  CHECK_THROWS_AS(slice_count(range, 0), PlanError);
}

TEST_CASE("transfers keep their dependencies; codec 0 and route 0 are nothing") {
  TransferGraph graph = two_ranks();
  CHECK(graph.codecs().size() == 1);
  CHECK_FALSE(graph.codecs()[0].is_lossy());
  CHECK(graph.routes()[0].empty());
  CHECK(graph.add_route({}) == RouteId(0));
  CHECK(graph.add_route({LinkId(4)}) == RouteId(1));
  CHECK(graph.add_codec({.kind = CodecKind::kFp16}) == 1);
  CHECK(graph.add_codec({}) == 0);
  CHECK(graph.add_codec({.kind = CodecKind::kFp16}) == 1);

  const auto a = graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, {});
  const auto b = graph.add_transfer(
      {.src = Rank(1), .dst = Rank(0), .chunk_begin = 1, .codec = 1, .route = RouteId(1)},
      std::vector{a});
  const auto c = graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, std::vector{a, b});
  CHECK(graph.dependencies(a).empty());
  REQUIRE(graph.dependencies(b).size() == 1);
  CHECK(graph.dependencies(b)[0] == a);
  REQUIRE(graph.dependencies(c).size() == 2);
  CHECK(graph.dependencies(c)[1] == b);
  CHECK(graph.transfer(b).chunk_begin == 1);
  CHECK(graph.transfers().size() == 3);
}

TEST_CASE("routes keep their rates; none has one unless it is given") {
  TransferGraph graph("g", Collective::kAllReduce, 2, {1});
  const RouteId free = graph.add_route({LinkId(3)});
  CHECK_FALSE(graph.has_rates());
  const RouteId held = graph.add_route({LinkId(4)}, Bandwidth(5));
  CHECK(graph.has_rates());
  CHECK(graph.rate(RouteId(0)) == Bandwidth());
  CHECK(graph.rate(free) == Bandwidth());
  CHECK(graph.rate(held) == Bandwidth(5));
  CHECK_THROWS_WITH(graph.add_route({LinkId(5)}, Bandwidth(-1)),
                    Catch::Contains("rate of route 3"));
}

TEST_CASE("a transfer that points nowhere is refused") {
  TransferGraph graph = two_ranks();
  const Transfer good{.src = Rank(0), .dst = Rank(1)};
  const auto refused = [&graph, &good](auto spoil) {
    Transfer bad = good;
    spoil(bad);
    CHECK_THROWS_AS(graph.add_transfer(bad, {}), PlanError);
  };
  refused([](Transfer& t) { t.src = Rank(2); });
  refused([](Transfer& t) { t.dst = Rank(2); });
  refused([](Transfer& t) { t.dst = t.src; });
  refused([](Transfer& t) { t.chunk_begin = 2; });
  refused([](Transfer& t) { t.chunk_count = 0; });
  refused([](Transfer& t) { t.chunk_count = 3; });
  refused([](Transfer& t) {
    t.chunk_begin = 1;
    t.chunk_count = 0xffffffffU;
  });
  refused([](Transfer& t) { t.codec = 1; });
  refused([](Transfer& t) { t.route = RouteId(1); });
  CHECK_THROWS_AS(graph.add_transfer(good, std::vector{TransferId(0)}), PlanError);
  CHECK(graph.transfers().empty());
}

TEST_CASE("a graph needs ranks, chunks and weight") {
  CHECK_THROWS_AS(TransferGraph("x", Collective::kAllReduce, 0, {1}), PlanError);
  CHECK_THROWS_AS(TransferGraph("x", Collective::kAllReduce, 2, {}), PlanError);
  CHECK_THROWS_AS(TransferGraph("x", Collective::kAllReduce, 2, {0, 0}), PlanError);
}

TEST_CASE("owners belong to reduce-scatter and all-gather, one known rank per chunk") {
  TransferGraph gather("x", Collective::kAllGather, 2, {1, 1});
  gather.set_owners({Rank(1), Rank(0)});
  CHECK(gather.owners()[0] == Rank(1));
  CHECK_THROWS_AS(gather.set_owners({Rank(0)}), PlanError);
  CHECK_THROWS_AS(gather.set_owners({Rank(0), Rank(2)}), PlanError);
  TransferGraph reduce = two_ranks();
  CHECK_THROWS_AS(reduce.set_owners({Rank(0), Rank(1)}), PlanError);
}

}  // namespace
}  // namespace rackrail::plan::transfer_graph_test
