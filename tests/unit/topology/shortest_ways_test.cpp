// All shortest ways of a pair: by hand on small graphs, and against every simple path on random
// ones.
#include "topology/shortest_ways.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "tests/unit/topology/graphs.hpp"

namespace rackrail::topology::shortest_ways_test {
namespace {

using test::add_gpu;
using test::add_switch;
using test::join;
using Ways = std::set<Route>;

/// Each of them, from the source to the destination.
Ways all_of(const Topology& topology, const PairWays& ways) {
  Ways found;
  Route backwards;
  const std::function<void(NodeId)> walk = [&](NodeId v) {
    if (v == ways.root) {
      Route route(backwards.rbegin(), backwards.rend());
      if (ways.way_out) {
        route.insert(route.begin(), *ways.way_out);
      }
      found.insert(std::move(route));
      return;
    }
    for (const LinkId link : ways.links_into(v)) {
      backwards.push_back(link);
      walk(topology.link(link).from);
      backwards.pop_back();
    }
  };
  walk(ways.end);
  return found;
}

/// Two GPUs under a leaf, one under another, and spines between with cables of these rates.
Topology leaves(const std::vector<Bandwidth>& spines) {
  Topology topology("leaves");
  const NodeId leaf0 = add_switch(topology, "leaf0");
  const NodeId leaf1 = add_switch(topology, "leaf1");
  for (const char* name : {"a", "b"}) {
    join(topology, add_gpu(topology, name), leaf0, 10_GBps);
  }
  join(topology, add_gpu(topology, "c"), leaf1, 10_GBps);
  for (std::size_t i = 0; i < spines.size(); ++i) {
    const NodeId spine = add_switch(topology, "spine" + std::to_string(i));
    join(topology, leaf0, spine, spines[i]);
    join(topology, spine, leaf1, spines[i]);
  }
  return topology;
}

TEST_CASE("the ways of a pair are those of least cost that are widest at the bottleneck") {
  const Topology topology = leaves({4_GBps, 5_GBps, 5_GBps});
  ShortestWays search(topology, Distance::kLatency);
  const auto ways = search.find(Rank(0), Rank(2));
  REQUIRE(ways.has_value());
  CHECK(ways->root == *topology.find_node("leaf0"));  // the only way out of its rank
  REQUIRE(ways->way_out.has_value());
  CHECK(topology.link_name(*ways->way_out) == "a→leaf0");
  CHECK(ways->width == 5_GBps);
  CHECK(ways->label(ways->end).cost.links == 3);  // from the root on
  CHECK(ways->label(ways->end).cost.latency == 3_us);
  CHECK(all_of(topology, *ways).size() == 2);
  CHECK_FALSE(search.find(Rank(1), Rank(1)).has_value());
}

TEST_CASE("ways that are kept stay the same when others are looked for") {
  const Topology topology = leaves({5_GBps, 5_GBps});
  for (const Distance distance : {Distance::kLatency, Distance::kMessage, Distance::kHops}) {
    ShortestWays search(topology, distance);
    const auto kept = search.find(Rank(0), Rank(2));
    REQUIRE(kept.has_value());
    const Ways before = all_of(topology, *kept);
    CHECK(before.size() == 2);
    const auto cost = kept->label(kept->end).cost;
    for (const auto& [src, dst] : {std::pair(2, 0), std::pair(1, 0), std::pair(1, 2)}) {
      REQUIRE(search.find(Rank(src), Rank(dst)).has_value());
      CHECK(all_of(topology, *kept) == before);
      CHECK(kept->label(kept->end).cost == cost);
    }
  }
}

TEST_CASE("a pair without a way is refused by its names") {
  Topology topology("apart");
  add_gpu(topology, "a");
  add_gpu(topology, "b");
  ShortestWays search(topology, Distance::kHops);
  CHECK_THROWS_WITH(search.find(Rank(0), Rank(1)), Catch::Contains("no way from 'a' to 'b'"));
}

/// By the definition: ranks passed, latency, links; and the bottleneck, of which less is worse.
using PathCost = std::tuple<std::size_t, std::int64_t, std::size_t, std::int64_t>;

/// The best of all simple paths, one by one.
Ways best_paths(const Topology& topology, NodeId from, NodeId to) {
  Ways best;
  PathCost least;
  Route path;
  std::vector<bool> visited(topology.node_count());
  const std::function<void(NodeId)> walk = [&](NodeId v) {
    if (v == to) {
      std::size_t ranks = 0;
      Duration latency;
      Bandwidth width = topology.link(path.front()).bandwidth;
      for (std::size_t i = 0; i < path.size(); ++i) {
        const Link& link = topology.link(path[i]);
        ranks += i > 0 && topology.rank_of(link.from) ? 1 : 0;
        latency += link.latency;
        width = std::min(width, link.bandwidth);
      }
      const PathCost cost{ranks, latency.picoseconds(), path.size(), -width.bytes_per_second()};
      if (best.empty() || cost < least) {
        best = {path};
        least = cost;
      } else if (cost == least) {
        best.insert(path);
      }
      return;
    }
    visited[v.index()] = true;
    for (const LinkId id : topology.links_out_of(v)) {
      if (const NodeId next = topology.link(id).to; !visited[next.index()]) {
        path.push_back(id);
        walk(next);
        path.pop_back();
      }
    }
    visited[v.index()] = false;
  };
  walk(from);
  return best;
}

TEST_CASE("on random graphs the ways are the best of all simple paths, however many were asked") {
  constexpr std::uint64_t kSeed = 77;
  std::size_t with_several = 0;
  for (std::uint64_t seed = kSeed; seed < kSeed + 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Topology topology("random");
    // Machines of two vertices are reached in a way of their own.
    for (int i = 0; i < 5; ++i) {
      add_gpu(topology, "g" + std::to_string(i),
              random() % 2 == 0 ? "" : "h" + std::to_string(i % 2));
    }
    for (int i = 0; i < 4; ++i) {
      add_switch(topology, "s" + std::to_string(i));
    }
    for (std::size_t v = 1; v < topology.node_count(); ++v) {
      join(topology, NodeId(random() % v), NodeId(v), 1_GBps);
    }
    for (int i = 0; i < 6; ++i) {
      const NodeId a(random() % topology.node_count());
      const NodeId b(random() % topology.node_count());
      if (a != b) {
        join(topology, a, b, random() % 2 == 0 ? 1_GBps : 2_GBps, random() % 3 == 0 ? 2_us : 1_us);
      }
    }
    ShortestWays search(topology, Distance::kLatency);
    for (std::size_t src = 0; src < topology.rank_count(); ++src) {
      for (std::size_t dst = 0; dst < topology.rank_count(); ++dst) {
        if (src == dst) continue;
        CAPTURE(src, dst);
        const auto ways = search.find(Rank(src), Rank(dst));
        REQUIRE(ways.has_value());
        const Ways expected =
            best_paths(topology, topology.node_of(Rank(src)), topology.node_of(Rank(dst)));
        REQUIRE(all_of(topology, *ways) == expected);
        with_several += expected.size() > 1 ? 1 : 0;
      }
    }
  }
  CHECK(with_several > 40);
}

}  // namespace
}  // namespace rackrail::topology::shortest_ways_test
