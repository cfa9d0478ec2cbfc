// The order in which moves take their turns: each once, after what it waits for, the urgent first.
#include "planner/forest/pacing.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/support/clusters.hpp"

namespace rackrail::planner {
namespace {

using topology::Topology;

TEST_CASE("every move of every round has one turn, after its predecessors") {
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
      for (std::uint32_t before = 0; before < m; ++before) {
        if (random() % 8 == 0) {
          moves[m].predecessors.push_back(before);
        }
      }
    }
    const std::size_t rounds = 1 + random() % 6;
    std::vector<std::int64_t> sizes;
    for (std::size_t round = 0; round < rounds; ++round) {
      sizes.push_back(static_cast<std::int64_t>(1 + random() % 3));
    }
    for (const auto& turns : {paced(moves, rounds, topology), in_stages(moves, rounds),
                              paced(moves, rounds, topology, 1e6, sizes)}) {
      std::set<std::pair<std::uint32_t, std::uint32_t>> done;
      for (const Turn& turn : turns) {
        for (const std::uint32_t before : moves[turn.move].predecessors) {
          CHECK(done.count({before, turn.round}) == 1);
        }
        CHECK(done.emplace(turn.move, turn.round).second);
      }
      CHECK(done.size() == moves.size() * rounds);
    }
  }
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
  const std::vector<Turn> turns = paced(moves, 1, topology);
  REQUIRE(turns.size() == 4);
  CHECK(turns[0].move == 1);
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
    for (const Turn& turn : paced(moves, 1, topology, 1e9)) {
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
    for (const Turn& turn : paced(moves, 1, topology, 1e9, {}, rates)) {
      if (turn.move >= 2) order.push_back(turn.move);
    }
    return order;
  };
  CHECK(order_of_last({3_GBps, 1_GBps, 4_GBps, 4_GBps}) == std::vector<std::uint32_t>{2, 3});
  CHECK(order_of_last({1_GBps, 3_GBps, 4_GBps, 4_GBps}) == std::vector<std::uint32_t>{3, 2});
}

}  // namespace
}  // namespace rackrail::planner
