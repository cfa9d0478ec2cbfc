// Moves with times: in their order as a graph, each after what it follows from.
#include "planner/pipeline/timed_moves.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::timed_moves_test {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;
using Numbers = std::vector<std::uint32_t>;

class TimedMovesTest {
 protected:
  plan::TransferGraph graph_of(const TimedMoves& moves, const TimedMoves::WaitMore& more = {}) {
    return moves.graph("moves", {.topology = topology_, .router = router_, .codecs = {}}, more);
  }
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

  topology::Topology topology_ = test::grid(2, 2, false);
  topology::Router router_{topology_};
};

/// A sum at rank 1 and from there to all.
void add_chunk(TimedMoves& moves, double share, double time) {
  moves.begin_chunk(share);
  moves.reduce(Rank(0), Rank(1), time);
  moves.reduce(Rank(2), Rank(3), time);
  moves.reduce(Rank(3), Rank(1), time + 1);
  moves.copy(Rank(1), Rank(0), time + 2);
  moves.copy(Rank(1), Rank(3), time + 2);
  moves.copy(Rank(3), Rank(2), time + 3);
}

TEST_CASE_METHOD(TimedMovesTest, "moves are in the order of their times") {
  TimedMoves moves(4, 100);
  add_chunk(moves, 0.75, 0.5);
  add_chunk(moves, 0.25, 0);
  const plan::TransferGraph graph = graph_of(moves);
  CHECK(graph.name() == "moves");
  CHECK(plan::verify(graph, &topology_).ok());
  const auto weights = graph.chunk_weights();
  CHECK(Numbers(weights.begin(), weights.end()) == Numbers{75, 25});
  // Those at the same time as they were given.
  CHECK(pairs_of(graph) == std::vector<Pair>{{0, 1},
                                             {2, 3},
                                             {0, 1},
                                             {2, 3},
                                             {3, 1},
                                             {3, 1},
                                             {1, 0},
                                             {1, 3},
                                             {1, 0},
                                             {1, 3},
                                             {3, 2},
                                             {3, 2}});
  CHECK(graph.transfers()[0].chunk_begin == 1);
  CHECK(graph.transfers()[2].chunk_begin == 0);
}

TEST_CASE_METHOD(TimedMovesTest, "a move waits for what has come to its sender in its chunk") {
  TimedMoves moves(4, 100);
  add_chunk(moves, 0.5, 0);
  add_chunk(moves, 0.5, 10);
  const plan::TransferGraph graph = graph_of(moves);
  for (const std::uint32_t first : {0U, 6U}) {
    CHECK(waits_of(graph, first) == Numbers{});
    CHECK(waits_of(graph, first + 2) == Numbers{first + 1});
    CHECK(waits_of(graph, first + 3) == Numbers{first, first + 2});
    CHECK(waits_of(graph, first + 5) == Numbers{first + 4});  // not for the sum before that copy
  }
}

TEST_CASE_METHOD(TimedMovesTest, "neighbours move together, after what any of them waits for") {
  TimedMoves moves(4, 100);
  moves.begin_chunk(0.2);
  moves.reduce(Rank(0), Rank(1), 9);
  moves.begin_chunks(std::vector{0.3, 0.1, 0.4});
  const std::uint32_t first = moves.reduce(Rank(0), Rank(1), 0, {0, 2});
  const std::uint32_t second = moves.reduce(Rank(2), Rank(1), 1, {1, 2});
  moves.reduce(Rank(1), Rank(3), 2, {0, 1});
  moves.reduce(Rank(1), Rank(3), 2, {0, 3});
  moves.copy(Rank(3), Rank(1), 3, {1, 1});
  moves.copy(Rank(1), Rank(0), 4, {1, 2});
  const plan::TransferGraph graph = graph_of(moves);
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

TEST_CASE_METHOD(TimedMovesTest, "no move is earlier than what it waits for") {
  TimedMoves moves(4, 100);
  moves.begin_chunk(0.5);
  moves.reduce(Rank(0), Rank(1), 5);
  moves.copy(Rank(1), Rank(3), 1);
  moves.begin_chunk(0.5);
  moves.reduce(Rank(2), Rank(3), 3);
  CHECK(pairs_of(graph_of(moves)) == std::vector<Pair>{{2, 3}, {0, 1}, {1, 3}});
}

TEST_CASE_METHOD(TimedMovesTest, "a chunk of no share has the smallest weight") {
  TimedMoves moves(4, 100);
  moves.begin_chunk(1e-9);
  CHECK(graph_of(moves).chunk_weights()[0] == 1);
}

TEST_CASE_METHOD(TimedMovesTest, "moves may wait for more, asked for in their order") {
  TimedMoves moves(4, 100);
  moves.begin_chunk(0.5);
  const std::uint32_t late = moves.reduce(Rank(0), Rank(1), 2);
  moves.begin_chunk(0.5);
  const std::uint32_t early = moves.reduce(Rank(0), Rank(1), 1);
  Numbers asked;
  const plan::TransferGraph graph =
      graph_of(moves, [&](std::uint32_t number, const TimedMove& move, Numbers& after) {
        CHECK(move.time == (number == late ? 2 : 1));
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
}  // namespace rackrail::planner::timed_moves_test
