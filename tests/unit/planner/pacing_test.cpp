// The order in which moves take their turns: each once, after what it waits for, the urgent first.
#include "planner/packing/pacing.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/support/clusters.hpp"

namespace rackrail::planner::pacing_test {
namespace {

using topology::Topology;

constexpr std::size_t kParts = 3;

/// Parts that are cut into as many pieces of one size.
Cuts in_rounds_of(std::int64_t size, std::size_t rounds, std::size_t parts = 1) {
  return {.sizes = {parts, std::vector<std::int64_t>(rounds, size)}};
}

TEST_CASE("every move of every piece has one turn, after its predecessors") {
  const Topology topology = test::grid(3, 3, true);
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<topology::Route> routes;
    for (std::uint32_t link = 0; link < topology.link_count(); ++link) {
      routes.push_back({LinkId(link)});
    }
    std::vector<Move> moves(1 + random() % 40);
    for (std::uint32_t m = 0; m < moves.size(); ++m) {
      moves[m] = {
          static_cast<std::int64_t>(1 + random() % 5), &routes[random() % routes.size()], {}};
      moves[m].part = random() % kParts;
      moves[m].chunk = random() % 2;
      for (std::uint32_t before = 0; before < m; ++before) {
        if (moves[before].part == moves[m].part && random() % 4 == 0) {
          moves[m].predecessors.push_back(before);
        }
      }
    }
    const std::size_t rounds = 1 + random() % 6;
    Cuts uneven{.take_turns = random() % 2 == 0};
    uneven.slices = 1 + random() % 3;
    for (std::size_t part = 0; part < kParts; ++part) {
      auto& sizes = uneven.sizes.emplace_back(1 + random() % 6);
      std::generate(sizes.begin(), sizes.end(), [&] { return 1 + random() % 3; });
    }
    const Cuts even = in_rounds_of(1, rounds, kParts);
    for (const auto& [turns, cuts] :
         {std::pair(paced(moves, even, topology), even), std::pair(in_stages(moves, rounds), even),
          std::pair(paced(moves, uneven, topology, 1e6), uneven)}) {
      std::set<std::pair<std::uint32_t, std::uint32_t>> done;
      std::size_t expected = 0;
      for (const Move& move : moves) {
        expected += cuts.sizes[move.part].size();
      }
      for (const Turn& turn : turns) {
        for (const std::uint32_t before : moves[turn.move].predecessors) {
          CHECK(done.count({before, turn.piece}) == 1);
        }
        CHECK(turn.piece < cuts.sizes[moves[turn.move].part].size());
        CHECK(done.emplace(turn.move, turn.piece).second);
      }
      CHECK(done.size() == expected);
    }
  }
}

TEST_CASE("parts that take turns are served in turn, however many moves are behind them") {
  // Over one link go three parts, of four pieces each. Only the first has a move behind it, so it
  // would go first altogether.
  const Topology topology = test::grid(1, 3, false);
  const topology::Route first{LinkId(0)};
  const topology::Route second{LinkId(2)};
  std::vector<Move> moves = {{1, &first, {}}, {1, &first, {}}, {1, &first, {}}, {1, &second, {0}}};
  moves[1].part = 1;
  moves[2].part = 2;
  const auto pieces_before_the_last_part = [&](bool take_turns) {
    Cuts cuts = in_rounds_of(1, 4, 3);
    cuts.take_turns = take_turns;
    std::size_t count = 0;
    for (const Turn& turn : paced(moves, cuts, topology, 1e9)) {
      if (turn.move == 1) break;
      count += turn.move != 3 ? 1 : 0;
    }
    return count;
  };
  CHECK(pieces_before_the_last_part(true) == 2);   // parts begin at 0, 0.62 and 0.24 of a piece
  CHECK(pieces_before_the_last_part(false) == 4);  // all of the first part
}

TEST_CASE("a link serves the longest chain first") {
  const Topology topology = test::grid(1, 4, false);
  const auto link = [&](int from, int to) {
    for (std::uint32_t l = 0; l < topology.link_count(); ++l) {
      if (topology.link(LinkId(l)).from == topology.node_of(Rank(from)) &&
          topology.link(LinkId(l)).to == topology.node_of(Rank(to))) {
        return topology::Route{LinkId(l)};
      }
    }
    FAIL("no such link");
    return topology::Route{};
  };
  const topology::Route first = link(0, 1);
  const topology::Route second = link(1, 2);
  const topology::Route third = link(2, 3);
  // Moves 0 and 1 share a link; move 1 has two more behind it.
  const std::vector<Move> moves = {
      {1, &first, {}}, {1, &first, {}}, {1, &second, {1}}, {1, &third, {2}}};
  const std::vector<Turn> turns = paced(moves, in_rounds_of(1, 1), topology);
  REQUIRE(turns.size() == 4);
  CHECK(turns[0].move == 1);
}

TEST_CASE("slices of a move go on before all of it is there, to what moves the same chunk") {
  const Topology topology = test::grid(1, 3, false);
  const topology::Route first{LinkId(0)};
  const topology::Route second{LinkId(2)};
  const topology::Route other{LinkId(1)};
  // What follows the first move begins after the other two, or between them.
  std::vector<Move> moves = {{4, &first, {}}, {4, &second, {0}}, {2, &other, {}}, {1, &other, {2}}};
  const auto turn_of_second = [&](std::uint32_t slices, std::uint32_t chunk) {
    moves[1].chunk = chunk;
    Cuts cuts = in_rounds_of(1, 1);
    cuts.slices = slices;
    const auto turns = paced(moves, cuts, topology);
    return std::ranges::find(turns, 1U, &Turn::move) - turns.begin();
  };
  CHECK(turn_of_second(1, 0) == 3);
  CHECK(turn_of_second(4, 0) == 2);  // it begins when a quarter of the first move is there
  CHECK(turn_of_second(4, 1) == 3);  // all of it must be
}

TEST_CASE("a move is not expected before its predecessor's latency is over") {
  const Topology topology = test::grid(1, 3, false);
  const topology::Route first{LinkId(0)};
  REQUIRE(topology.link(LinkId(0)).from == topology.node_of(Rank(0)));
  const topology::Route second{LinkId(2)};
  REQUIRE(topology.link(LinkId(2)).from == topology.node_of(Rank(1)));
  // Move 1 follows move 0 over the next link, where moves 2 and 3 have been ready from the start.
  const auto order = [&](double latency) {
    std::vector<Move> moves = {
        {1, &first, {}}, {2, &second, {0}}, {1, &second, {}}, {3, &second, {}}};
    moves[0].latency = latency;
    std::vector<std::uint32_t> on_second;
    for (const Turn& turn : paced(moves, in_rounds_of(1, 1), topology, 1e9)) {
      if (turn.move != 0) on_second.push_back(turn.move);
    }
    return on_second;
  };
  // A unit takes a second: after the three of move 3 the link is free again.
  CHECK(order(0.5) == std::vector<std::uint32_t>{3, 1, 2});
  CHECK(order(4) == std::vector<std::uint32_t>{3, 2, 1});
}

/// A chain of ranks with links of `rates`, one way: link i leads from rank i to the next.
Topology chain(const std::vector<Bandwidth>& rates) {
  Topology topology("chain");
  NodeId last = topology.add_node({.name = "g0"});
  topology.add_rank(last);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const NodeId next = topology.add_node({.name = "g" + std::to_string(i + 1)});
    topology.add_rank(next);
    topology.add_link({.from = last, .to = next, .bandwidth = rates[i]});
    last = next;
  }
  return topology;
}

TEST_CASE("routes have rates in proportion to what they carry; who has room takes it") {
  const Topology topology = chain({12_GBps, 30_GBps, 2_GBps});
  const topology::Route both = {LinkId(0), LinkId(1)};
  const topology::Route first = {LinkId(0)};
  const topology::Route second = {LinkId(1)};
  const topology::Route third = {LinkId(2)};
  // The first link is full at 3 GB/s for each unit; what is left of the second is one route's.
  const std::vector<Move> moves = {
      {1, &both, {}}, {1, &first, {}}, {2, &first, {}}, {1, &second, {}}, {7, &third, {}}};
  CHECK(proportional_rates(moves, topology) ==
        std::vector{3_GBps, 9_GBps, 9_GBps, 27_GBps, 2_GBps});

  // Seven units take 3.5 s of a GB each over the last link; the others need no more.
  constexpr double kMost = 1.1;
  const std::vector<Bandwidth> limited = proportional_rates(moves, topology, kMost);
  REQUIRE(limited.size() == moves.size());
  CHECK(limited.back() == 2_GBps);
  // Of the second and the third move, which share a route, three units.
  for (const auto& [move, units] : {std::pair(0, 1.0), std::pair(1, 3.0), std::pair(3, 1.0)}) {
    CAPTURE(move);
    CHECK(static_cast<double>(limited[move].bytes_per_second()) ==
          Approx(kMost * units * 2e9 / 7).epsilon(1e-6));
  }
}

TEST_CASE("moves with rates take no notice of each other") {
  // Two lanes over one link. Sharing it evenly, both end after two seconds; at rates of 3 : 1 the
  // second ends after four, and what follows the first on the next link is due before.
  const Topology topology = chain({4_GBps, 4_GBps, 4_GBps});
  const topology::Route near = {LinkId(0)};
  const topology::Route far = {LinkId(0), LinkId(1)};
  const topology::Route last = {LinkId(2)};
  const std::vector<Move> moves = {{1, &near, {}}, {1, &far, {}}, {1, &last, {0}}, {1, &last, {1}}};
  const auto order_of_last = [&](const std::vector<Bandwidth>& rates) {
    std::vector<std::uint32_t> order;
    for (const Turn& turn : paced(moves, in_rounds_of(1, 1), topology, 1e9, rates)) {
      if (turn.move >= 2) order.push_back(turn.move);
    }
    return order;
  };
  CHECK(order_of_last({3_GBps, 1_GBps, 4_GBps, 4_GBps}) == std::vector<std::uint32_t>{2, 3});
  CHECK(order_of_last({1_GBps, 3_GBps, 4_GBps, 4_GBps}) == std::vector<std::uint32_t>{3, 2});
}

}  // namespace
}  // namespace rackrail::planner::pacing_test
