// The writer of transfer graphs: moves in their turns, each after what it follows from.
#include "planner/pipeline/move_writer.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::move_writer_test {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;
using Numbers = std::vector<std::uint32_t>;

class MoveWriterTest {
 protected:
  MoveWriter writer(const TierCodecs& codecs = {}) {
    return {"moves", {.topology = topology_, .router = router_, .codecs = codecs}};
  }
  static void begin(MoveWriter& moves, Numbers weights) { moves.begin_chunks(weights); }
  static std::vector<Pair> pairs_of(const plan::TransferGraph& graph) {
    std::vector<Pair> pairs;
    for (const plan::Transfer& transfer : graph.transfers()) {
      pairs.emplace_back(transfer.src.value(), transfer.dst.value());
    }
    return pairs;
  }
  static Numbers waits_of(const plan::TransferGraph& graph, std::size_t transfer) {
    Numbers waits;
    for (const TransferId id : graph.dependencies(TransferId(transfer))) {
      waits.push_back(id.value());
    }
    return waits;
  }
  /// A sum at rank 1 and from there to all.
  static void add_chunk(MoveWriter& moves, std::uint32_t weight, std::optional<double> turn) {
    const auto later = [&](double by) { return turn ? std::optional(*turn + by) : turn; };
    begin(moves, {weight});
    moves.reduce(Rank(0), Rank(1), {}, turn);
    moves.reduce(Rank(2), Rank(3), {}, turn);
    moves.reduce(Rank(3), Rank(1), {}, later(1));
    moves.copy(Rank(1), Rank(0), {}, later(2));
    moves.copy(Rank(1), Rank(3), {}, later(2));
    moves.copy(Rank(3), Rank(2), {}, later(3));
  }
  /// Both chunks' first moves, then of both those that wait for them.
  static std::vector<Pair> both_pieces_in_order() {
    return {{0, 1}, {2, 3}, {0, 1}, {2, 3}, {3, 1}, {3, 1},
            {1, 0}, {1, 3}, {1, 0}, {1, 3}, {3, 2}, {3, 2}};
  }

  topology::Topology topology_ = test::grid(2, 2, false);
  topology::Router router_{topology_};
};

TEST_CASE_METHOD(MoveWriterTest, "moves are in the order of their turns") {
  MoveWriter moves = writer();
  add_chunk(moves, 75, 0.5);
  add_chunk(moves, 25, 0);
  const plan::TransferGraph graph = moves.take();
  CHECK(graph.name() == "moves");
  CHECK(plan::verify(graph, &topology_).ok());
  const auto weights = graph.chunk_weights();
  CHECK(Numbers(weights.begin(), weights.end()) == Numbers{75, 25});
  // Those at the same time as they were given.
  CHECK(pairs_of(graph) == both_pieces_in_order());
  CHECK(graph.transfers()[0].chunk_begin == 1);
  CHECK(graph.transfers()[2].chunk_begin == 0);
}

TEST_CASE_METHOD(MoveWriterTest, "without turns, pieces follow one another") {
  MoveWriter moves = writer();
  add_chunk(moves, 1, std::nullopt);
  add_chunk(moves, 1, std::nullopt);
  const plan::TransferGraph graph = moves.take();
  CHECK(plan::verify(graph, &topology_).ok());
  // Both pieces of the first moves, then of those that wait for them.
  CHECK(pairs_of(graph) == both_pieces_in_order());
  CHECK(graph.transfers()[0].chunk_begin == 0);
  CHECK(graph.transfers()[2].chunk_begin == 1);
}

TEST_CASE_METHOD(MoveWriterTest, "a move waits for what has come to its sender in its chunk") {
  MoveWriter moves = writer();
  add_chunk(moves, 1, 0);
  add_chunk(moves, 1, 10);
  const plan::TransferGraph graph = moves.take();
  for (const std::uint32_t first : {0U, 6U}) {
    CHECK(waits_of(graph, first) == Numbers{});
    CHECK(waits_of(graph, first + 2) == Numbers{first + 1});
    CHECK(waits_of(graph, first + 3) == Numbers{first, first + 2});
    CHECK(waits_of(graph, first + 5) == Numbers{first + 4});  // not for the sum before that copy
  }
}

TEST_CASE_METHOD(MoveWriterTest, "what is sent in another form waits for a lossy copy") {
  const plan::Codec int8 = plan::parse_codec("int8");
  MoveWriter moves = writer({int8, int8});
  begin(moves, {1, 1});
  moves.copy(Rank(0), Rank(1), {0, 2}, 0);
  moves.copy(Rank(0), Rank(2), {0, 2}, 0);  // the same bytes
  moves.copy(Rank(0), Rank(3), {0, 1}, 0);  // others
  const plan::TransferGraph graph = moves.take();
  CHECK(waits_of(graph, 1) == Numbers{});
  CHECK(waits_of(graph, 2) == Numbers{0, 1});
}

TEST_CASE_METHOD(MoveWriterTest, "neighbours move together, after what any of them waits for") {
  MoveWriter moves = writer();
  begin(moves, {20});
  moves.reduce(Rank(0), Rank(1), {}, 9);
  begin(moves, {30, 10, 40});
  const std::uint32_t first = moves.reduce(Rank(0), Rank(1), {0, 2}, 0);
  const std::uint32_t second = moves.reduce(Rank(2), Rank(1), {1, 2}, 1);
  moves.reduce(Rank(1), Rank(3), {0, 1}, 2);
  moves.reduce(Rank(1), Rank(3), {0, 3}, 2);
  moves.copy(Rank(3), Rank(1), {1, 1}, 3);
  moves.copy(Rank(1), Rank(0), {1, 2}, 4);
  const plan::TransferGraph graph = moves.take();
  const auto weights = graph.chunk_weights();
  CHECK(Numbers(weights.begin(), weights.end()) == Numbers{20, 30, 10, 40});
  REQUIRE(graph.transfers().size() == 7);
  CHECK(graph.transfers()[0].chunk_begin == 1);
  CHECK(graph.transfers()[0].chunk_count == 2);
  CHECK(graph.transfers()[1].chunk_begin == 2);
  CHECK(graph.transfers()[1].chunk_count == 2);
  CHECK(waits_of(graph, 2) == Numbers{first - 1});
  CHECK(waits_of(graph, 3) == Numbers{first - 1, second - 1});
  CHECK(waits_of(graph, 4) == Numbers{3});     // no sum but that of all three
  CHECK(waits_of(graph, 5) == Numbers{1, 4});  // the copy of one, a sum of the other
  CHECK(graph.transfers()[6].chunk_begin == 0);
}

TEST_CASE_METHOD(MoveWriterTest, "no move is earlier than what it waits for") {
  MoveWriter moves = writer();
  begin(moves, {1});
  moves.reduce(Rank(0), Rank(1), {}, 5);
  moves.copy(Rank(1), Rank(3), {}, 1);
  begin(moves, {1});
  moves.reduce(Rank(2), Rank(3), {}, 3);
  CHECK(pairs_of(moves.take()) == std::vector<Pair>{{2, 3}, {0, 1}, {1, 3}});
}

TEST_CASE_METHOD(MoveWriterTest,
                 "a mutual sum waits for what its members have, and stays together") {
  MoveWriter moves = writer();
  begin(moves, {1});
  const std::vector<Rank> first{Rank(0), Rank(1)};
  const std::vector<Rank> second{Rank(0), Rank(2)};
  moves.mutual_sum(first, {});
  moves.mutual_sum(second, {});
  const plan::TransferGraph graph = moves.take();
  CHECK(pairs_of(graph) == std::vector<Pair>{{0, 1}, {1, 0}, {0, 2}, {2, 0}});
  CHECK(waits_of(graph, 2) == Numbers{1});
  CHECK(waits_of(graph, 3).empty());
  REQUIRE(graph.mutual_sums().size() == 2);
  CHECK(graph.mutual_sums()[1].first == TransferId(2));
  CHECK(graph.mutual_sums()[1].count == 2);
}

TEST_CASE_METHOD(MoveWriterTest, "moves may wait for more, asked for in their order") {
  MoveWriter moves = writer();
  begin(moves, {1});
  const std::uint32_t late = moves.reduce(Rank(0), Rank(1), {}, 2);
  begin(moves, {1});
  const std::uint32_t early = moves.reduce(Rank(0), Rank(1), {}, 1);
  Numbers asked;
  const plan::TransferGraph graph =
      moves.take([&](std::uint32_t number, const MoveWriter::Move& move, Numbers& after) {
        CHECK(move.turn == (number == late ? 2 : 1));
        if (!asked.empty()) {
          after.push_back(asked.back());
        }
        asked.push_back(number);
      });
  CHECK(asked == Numbers{early, late});
  CHECK(waits_of(graph, 0) == Numbers{});
  CHECK(waits_of(graph, 1) == Numbers{0});
}

}  // namespace
}  // namespace rackrail::planner::move_writer_test
