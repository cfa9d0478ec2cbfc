// Routes on random graphs against all simple paths, one by one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <optional>
#include <tuple>

#include "tests/property/topology/random_topology.hpp"
#include "topology/queries.hpp"

namespace rackrail::router_property_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::random_topology;

namespace {

constexpr std::uint64_t kSeed = 20260101;

/// Ranks passed, machines entered (by hops), latency that counts, links, and the negative
/// bottleneck: smaller is better in this order.
using Cost = std::tuple<std::size_t, std::size_t, std::int64_t, std::size_t, std::int64_t>;

/// A machine that is a single vertex has no inside.
bool has_inside(const Topology& t, const std::string& host) {
  int vertices = 0;
  for (std::size_t i = 0; i < t.node_count(); ++i) {
    vertices += t.node(NodeId(i)).host == host ? 1 : 0;
  }
  return !host.empty() && vertices > 1;
}

Cost cost_of(const Topology& t, const Route& route, Distance distance) {
  std::size_t passed = 0;
  for (std::size_t i = 1; i < route.size(); ++i) {
    passed += t.rank_of(t.link(route[i]).from) ? 1 : 0;
  }
  Route counted;
  std::copy_if(route.begin(), route.end(), std::back_inserter(counted), [&](LinkId id) {
    return distance == Distance::kLatency ||
           t.node(t.link(id).from).host == t.node(t.link(id).to).host;
  });
  const auto entered = std::count_if(route.begin(), route.end(), [&](LinkId id) {
    const std::string& host = t.node(t.link(id).to).host;
    return distance == Distance::kHops && t.node(t.link(id).from).host != host &&
           has_inside(t, host);
  });
  return {passed, static_cast<std::size_t>(entered), route_latency(t, counted).picoseconds(),
          route.size(), -route_bandwidth(t, route).bytes_per_second()};
}

class AllPaths {
 public:
  AllPaths(const Topology& t, NodeId to, Distance distance)
      : t_(t), to_(to), distance_(distance), visited_(t.node_count()) {}

  Cost best_from(NodeId from) {
    walk(from);
    return *best_;
  }

 private:
  void walk(NodeId at) {
    if (at == to_) {
      const Cost cost = cost_of(t_, path_, distance_);
      if (!best_ || cost < *best_) best_ = cost;
      return;
    }
    visited_[at.index()] = true;
    for (const LinkId link : t_.links_out_of(at)) {
      if (visited_[t_.link(link).to.index()]) continue;
      path_.push_back(link);
      walk(t_.link(link).to);
      path_.pop_back();
    }
    visited_[at.index()] = false;
  }

  const Topology& t_;
  NodeId to_;
  Distance distance_;
  std::vector<bool> visited_;
  Route path_;
  std::optional<Cost> best_;
};

}  // namespace

TEST_CASE("a route is a path, and no other path is better") {
  const Distance distance = GENERATE(Distance::kLatency, Distance::kHops);
  for (std::uint64_t i = 0; i < 300; ++i) {
    CAPTURE(kSeed, i, distance);
    const Topology t = random_topology(kSeed + i, 5, 3);
    Router router(t, distance);
    for (std::size_t a = 0; a < t.rank_count(); ++a) {
      for (std::size_t b = 0; b < t.rank_count(); ++b) {
        if (a == b) continue;
        const NodeId from = t.node_of(Rank(a));
        const NodeId to = t.node_of(Rank(b));
        const Route& route = router.route(Rank(a), Rank(b));
        REQUIRE(t.link(route.front()).from == from);
        REQUIRE(t.link(route.back()).to == to);
        for (std::size_t k = 1; k < route.size(); ++k) {
          REQUIRE(t.link(route[k]).from == t.link(route[k - 1]).to);
        }
        REQUIRE(cost_of(t, route, distance) == AllPaths(t, to, distance).best_from(from));
      }
    }
  }
}

}  // namespace rackrail::router_property_test
