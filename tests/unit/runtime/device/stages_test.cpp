#include "runtime/device/stages.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/verifier.hpp"
#include "runtime/device/stage_agreement.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::stages_test {
namespace {

using plan::Collective;
using plan::Transfer;
using plan::TransferGraph;
using plan::TransferOp;

std::vector<Rank> ranks(std::initializer_list<int> numbers) {
  std::vector<Rank> result;
  for (const int number : numbers) {
    result.emplace_back(number);
  }
  return result;
}

/// Two groups of two: shards summed at one member of each group, across, and back.
TransferGraph two_by_two(const plan::Codec& across = {}) {
  TransferGraph graph("2x2", Collective::kAllReduce, 4, {1, 1});
  const std::uint8_t code = graph.add_codec(across);
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const Rank here(shard);       // of group {0, 1}
    const Rank there(2 + shard);  // of group {2, 3}
    const auto add = [&](Rank src, Rank dst, TransferOp op, std::uint8_t codec,
                         std::vector<TransferId> after) {
      return graph.add_transfer(
          {.src = src, .dst = dst, .chunk_begin = shard, .op = op, .codec = codec}, after);
    };
    const auto a = add(Rank(1 - shard), here, TransferOp::kReduce, 0, {});
    const auto b = add(Rank(3 - shard), there, TransferOp::kReduce, 0, {});
    const auto sum = add(there, here, TransferOp::kReduce, code, {b});
    const auto back = add(here, there, TransferOp::kCopy, code, {a, sum});
    add(here, Rank(1 - shard), TransferOp::kCopy, 0, {back});
    add(there, Rank(3 - shard), TransferOp::kCopy, 0, {back});
  }
  return graph;
}

std::vector<StageKind> kinds(const std::vector<Stage>& stages) {
  std::vector<StageKind> result;
  for (const Stage& stage : stages) {
    result.push_back(stage.kind);
  }
  return result;
}

TEST_CASE("stages: a schedule in two tiers is reduce-scatter, messages, all-gather") {
  const auto codec = GENERATE(plan::Codec{}, plan::Codec{.kind = plan::CodecKind::kFp16});
  const TransferGraph graph = two_by_two(codec);
  REQUIRE(plan::verify(graph, nullptr).ok());
  const RankGroups groups{ranks({0, 1}), ranks({2, 3})};
  const std::vector<Stage> stages = find_stages(graph, groups);
  CHECK(kinds(stages) == std::vector{StageKind::kReduce, StageKind::kReduce, StageKind::kExchange,
                                     StageKind::kExchange, StageKind::kBroadcast,
                                     StageKind::kBroadcast});
  const std::vector<StagePart> parts{{0, 1, 0}, {1, 1, 1}};
  for (const std::size_t s : {0U, 1U, 4U, 5U}) {
    CHECK(stages[s].parts == parts);
    CHECK(stages[s].group == s % 2);
  }
  CHECK(stages[2].transfers == std::vector{TransferId(2), TransferId(8)});
  CHECK(stages[3].transfers == std::vector{TransferId(3), TransferId(9)});
}

TEST_CASE("stages: a schedule inside one group is one all-reduce, whatever it looks like") {
  const bool is_ring = GENERATE(true, false);
  const TransferGraph graph = is_ring ? ring(4) : star(4);
  const std::vector<Stage> stages = find_stages(graph, {ranks({3, 0, 2, 1})});
  REQUIRE(stages.size() == 1);
  CHECK(stages[0].kind == StageKind::kAllReduce);
  CHECK(stages[0].parts ==
        std::vector<StagePart>{{0, static_cast<std::uint32_t>(graph.chunk_count()), 0}});
}

TEST_CASE("stages: lossy transfers are messages, in rounds") {
  const TransferGraph graph = ring(3, {.kind = plan::CodecKind::kFp16});
  const std::vector<Stage> stages = find_stages(graph, {ranks({0, 1, 2})});
  REQUIRE(stages.size() == 4);
  for (const Stage& stage : stages) {
    CHECK(stage.kind == StageKind::kExchange);
    CHECK(stage.transfers.size() == 3);
  }
}

TEST_CASE("stages: every rank for itself has messages only") {
  const std::vector<Stage> stages = find_stages(star(3), {ranks({0}), ranks({1}), ranks({2})});
  CHECK(kinds(stages) == std::vector{StageKind::kExchange, StageKind::kExchange});
  CHECK(stages[0].transfers.size() == 2);
  CHECK(stages[1].transfers.size() == 2);
}

TEST_CASE("stages: what is read afterwards is not left to a reduction") {
  // Rank 1 adds its own to rank 0 and then still sends it to rank 2, which is in another group.
  TransferGraph graph("leftover", Collective::kReduceScatter, 3, {1, 1});
  graph.set_owners(ranks({0, 2}));
  const auto add = [&](int src, int dst, std::uint32_t chunk, std::vector<TransferId> after) {
    return graph.add_transfer(
        {.src = Rank(src), .dst = Rank(dst), .chunk_begin = chunk, .op = TransferOp::kReduce},
        after);
  };
  add(1, 0, 0, {});
  add(2, 0, 0, {});
  const auto first = add(0, 1, 1, {});
  add(1, 2, 1, {first});
  REQUIRE(plan::verify(graph, nullptr).ok());
  const std::vector<Stage> stages = find_stages(graph, {ranks({0, 1}), ranks({2})});
  // Chunk 1 is summed at rank 1, whose value goes on; what rank 0 has of it is not needed.
  REQUIRE(stages.size() == 2);
  CHECK(stages[0].kind == StageKind::kReduce);
  CHECK(stages[0].parts == std::vector<StagePart>{{0, 1, 0}, {1, 1, 1}});
  CHECK(stages[1].kind == StageKind::kExchange);

  // And now rank 0's part of chunk 1 goes to rank 2 on its own, after it was added to rank 1 in
  // vain: a graph that nobody would make, but no reduction.
  TransferGraph other("kept", Collective::kReduceScatter, 3, {1});
  other.set_owners(ranks({2}));
  const auto spent =
      other.add_transfer({.src = Rank(0), .dst = Rank(1), .op = TransferOp::kReduce}, {});
  other.add_transfer({.src = Rank(0), .dst = Rank(2), .op = TransferOp::kReduce},
                     std::vector{spent});
  const std::vector<Stage> exchanged = find_stages(other, {ranks({0, 1}), ranks({2})});
  CHECK(kinds(exchanged) == std::vector{StageKind::kExchange, StageKind::kExchange});
}

TEST_CASE("stages: chunks that move together are collective together or not at all") {
  // One transfer of two chunks, of which only the first is gathered by all three.
  TransferGraph graph("pair", Collective::kAllGather, 3, {1, 1});
  graph.set_owners(ranks({0, 0}));
  const auto both = graph.add_transfer({.src = Rank(0), .dst = Rank(1), .chunk_count = 2}, {});
  graph.add_transfer({.src = Rank(1), .dst = Rank(2), .chunk_begin = 0}, std::vector{both});
  const std::vector<Stage> stages = find_stages(graph, {ranks({0, 1, 2})});
  CHECK(kinds(stages) == std::vector{StageKind::kExchange, StageKind::kExchange});
}

TEST_CASE("stages: sums that collectives make apart from each other are not taken to be alike") {
  const TransferGraph graph = two_by_two();
  const RankGroups groups{ranks({0, 1}), ranks({2, 3})};
  std::vector<Stage> stages;
  for (const std::uint32_t group : {0U, 1U}) {
    stages.push_back({.kind = StageKind::kAllReduce, .group = group, .parts = {{0, 2, 0}}});
  }
  CHECK_FALSE(all_end_alike(graph, groups, stages));
  stages.push_back({.kind = StageKind::kExchange, .transfers = {TransferId(2), TransferId(8)}});
  stages.push_back({.kind = StageKind::kExchange, .transfers = {TransferId(3), TransferId(9)}});
  for (const std::uint32_t group : {0U, 1U}) {
    stages.push_back(
        {.kind = StageKind::kBroadcast, .group = group, .parts = {{0, 1, 0}, {1, 1, 1}}});
  }
  CHECK(all_end_alike(graph, groups, stages));
}

TEST_CASE("stages: where ranks would not end alike, sums are messages") {
  // Not an all-reduce, but one in each group: what no verifier lets pass.
  TransferGraph graph("apart", Collective::kAllReduce, 4, {1});
  for (const int first : {0, 2}) {
    const auto sum = graph.add_transfer(
        {.src = Rank(first + 1), .dst = Rank(first), .op = TransferOp::kReduce}, {});
    graph.add_transfer({.src = Rank(first), .dst = Rank(first + 1)}, std::vector{sum});
  }
  CHECK(kinds(find_stages(graph, {ranks({0, 1}), ranks({2, 3})})) ==
        std::vector{StageKind::kExchange, StageKind::kExchange});
}

TEST_CASE("stages: groups that do not have each rank once are refused") {
  const TransferGraph graph = star(3);
  for (const RankGroups& groups : {RankGroups{ranks({0, 1})}, RankGroups{ranks({0, 1, 2, 1})},
                                   RankGroups{ranks({0, 1}), ranks({2, 3})}}) {
    CHECK_THROWS_AS(find_stages(graph, groups), PlanError);
  }
}

}  // namespace
}  // namespace rackrail::runtime::stages_test
