// Shortest routes, each kept once found.
//
// Model. The cost of a route is (ranks passed through, latency, links), compared in this order. A
// rank in the middle counts in the first place, so a route uses one only where there is no other
// way, and then as few as possible; the machines of a ring or torus thereby reach each other too.
//
// Per root: Dijkstra gives the cost of every vertex, as far as it is needed: it stops at the
// destination and goes on from there when a farther one is asked for. An arc (u, v) is tight when
// cost(u) + its own cost = cost(v); the tight arcs form a DAG that holds all shortest routes.
// Vertices leave the heap in a topological order of it, since every arc adds a link; so `width`,
// the best bottleneck among the shortest routes, is found on the way. The root is the source, or
// the switch behind it where there is only one way out: then hosts of one switch share the work.
//
// Per destination: walk back from it along tight arcs that keep its width. Where several remain
// (ECMP), a hash of the two ranks decides; within the machine of the source or destination, the
// number of the rank in its machine does, so that GPUs with several near NICs use one each, as
// collective libraries have it.
//
// Cost: O(E log V) per root and O(links · in-degree) per destination; 24 bytes per vertex are kept
// for each root, as long as all of them stay below kMostKept.
#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {
namespace {

struct Cost {
  std::uint32_t ranks = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t links = 0;
  Duration latency;

  bool is_reached() const { return ranks != std::numeric_limits<std::uint32_t>::max(); }
  auto key() const { return std::tuple(ranks, latency, links); }
  bool operator==(const Cost& o) const { return key() == o.key(); }
  bool operator<(const Cost& o) const { return key() < o.key(); }
};

constexpr std::size_t kMostKept = std::size_t{256} << 20U;  // bytes

using Entry = std::pair<Cost, NodeId>;
struct Later {
  bool operator()(const Entry& a, const Entry& b) const {
    return b.first < a.first || (a.first == b.first && b.second < a.second);
  }
};

/// What is known of the ways from one vertex.
struct Exploration {
  std::vector<Cost> cost;        // by vertex
  std::vector<Bandwidth> width;  // by vertex: best bottleneck among the shortest routes
  std::priority_queue<Entry, std::vector<Entry>, Later> queue;
};

}  // namespace

struct Router::Impl {
  explicit Impl(const Topology& t) : topology(t) {
    local_index.resize(t.rank_count());
    for (const RankGroup& group : ranks_by_host(t)) {
      for (std::size_t i = 0; i < group.ranks.size(); ++i) {
        local_index[group.ranks[i].index()] = i;
      }
    }
  }

  /// Cost of passing through `v`, which is reached at the cost of `at`, on the way from `root`.
  Cost through(const Cost& at, NodeId v, NodeId root) const {
    Cost cost = at;
    cost.ranks += v != root && topology.rank_of(v) ? 1 : 0;
    return cost;
  }
  static Cost extended(Cost cost, const Link& link) {
    cost.latency += link.latency;
    ++cost.links;
    return cost;
  }

  /// The only link out of a rank's vertex, where there is only one and it leads to a switch.
  std::optional<LinkId> only_way_out(NodeId start) const {
    std::optional<LinkId> only;
    for (const LinkId id : topology.links_out_of(start)) {
      if (topology.link(id).kind != LinkKind::kShared) {
        if (only) return std::nullopt;
        only = id;
      }
    }
    return only && !topology.rank_of(topology.link(*only).to) ? only : std::nullopt;
  }

  /// Ways from `root`, known at least as far as `end`.
  const Exploration& explored(NodeId root, NodeId end) {
    const std::size_t vertices = topology.node_count();
    if (explorations.size() * vertices * (sizeof(Cost) + sizeof(Bandwidth)) > kMostKept) {
      explorations.clear();
    }
    const auto [it, is_new] = explorations.try_emplace(root);
    Exploration& found = it->second;
    if (is_new) {
      found.cost.resize(vertices);
      found.width.resize(vertices);
      found.cost[root.index()] = Cost{0, 0, Duration(0)};
      found.width[root.index()] = Bandwidth(std::numeric_limits<std::int64_t>::max());
      found.queue.push({found.cost[root.index()], root});
    }
    // All that is cheaper than the destination must have left the heap.
    while (!found.queue.empty() && found.queue.top().first < found.cost[end.index()]) {
      const auto [cost, v] = found.queue.top();
      found.queue.pop();
      if (!(cost == found.cost[v.index()])) continue;  // a cheaper way was found since
      const Cost left = through(cost, v, root);
      for (const LinkId id : topology.links_out_of(v)) {
        const Link& link = topology.link(id);
        if (link.kind == LinkKind::kShared) continue;  // a resource, not a way
        const Cost next = extended(left, link);
        Cost& known = found.cost[link.to.index()];
        Bandwidth& width = found.width[link.to.index()];
        const Bandwidth narrowest = std::min(found.width[v.index()], link.bandwidth);
        if (next < known) {
          known = next;
          width = narrowest;
          found.queue.push({next, link.to});
        } else if (next == known) {
          width = std::max(width, narrowest);
        }
      }
    }
    return found;
  }

  /// Tight links into v that keep the width, in order of their ids.
  std::vector<LinkId> candidates(const Exploration& found, NodeId root, NodeId v,
                                 Bandwidth width) const {
    std::vector<LinkId> list;
    for (const LinkId id : topology.links_into(v)) {
      const Link& link = topology.link(id);
      const Cost& before = found.cost[link.from.index()];
      if (link.kind != LinkKind::kShared && before.is_reached() &&
          extended(through(before, link.from, root), link) == found.cost[v.index()] &&
          std::min(found.width[link.from.index()], link.bandwidth) >= width) {
        list.push_back(id);
      }
    }
    return list;
  }

  std::size_t choose(const std::vector<LinkId>& links, Rank src, Rank dst, NodeId v) const {
    const auto machine_of = [this](NodeId id) -> const std::string& {
      return topology.node(id).host;
    };
    const auto all_from = [&](const std::string& machine) {
      return !machine.empty() && std::all_of(links.begin(), links.end(), [&](LinkId id) {
        return machine_of(topology.link(id).from) == machine;
      });
    };
    if (all_from(machine_of(topology.node_of(dst)))) {
      return local_index[dst.index()] % links.size();
    }
    if (all_from(machine_of(topology.node_of(src)))) {
      return local_index[src.index()] % links.size();
    }
    const std::uint64_t pair = (std::uint64_t{src.value()} << 32U) | dst.value();
    return random_bits(pair, v.value()) % links.size();
  }

  const Topology& topology;
  std::unordered_map<NodeId, Exploration> explorations;  // by root
  std::unordered_map<std::uint64_t, Route> routes;       // by source and destination
  std::vector<std::size_t> local_index;                  // of each rank in its machine
};

Router::Router(const Topology& topology) : impl_(std::make_unique<Impl>(topology)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

const Route& Router::route(Rank src, Rank dst) {
  const std::uint64_t pair = (std::uint64_t{src.value()} << 32U) | dst.value();
  const auto known = impl_->routes.find(pair);
  if (known != impl_->routes.end()) {
    return known->second;
  }
  Route route;
  const Topology& topology = impl_->topology;
  const NodeId start = topology.node_of(src);
  const NodeId end = topology.node_of(dst);
  if (start != end) {
    const std::optional<LinkId> way_out = impl_->only_way_out(start);
    const NodeId root = way_out ? topology.link(*way_out).to : start;
    const Exploration& found = impl_->explored(root, end);
    if (!found.cost[end.index()].is_reached()) {
      throw ConfigError(ErrorContext{
          "", "cluster '" + topology.name() + "'",
          "no way from '" + topology.node(start).name + "' to '" + topology.node(end).name + "'",
          "a connected graph"});
    }
    Bandwidth width = found.width[end.index()];
    if (way_out) {
      width = std::min(width, topology.link(*way_out).bandwidth);
    }
    for (NodeId v = end; v != root;) {
      const std::vector<LinkId> links = impl_->candidates(found, root, v, width);
      const LinkId chosen = links[links.size() == 1 ? 0 : impl_->choose(links, src, dst, v)];
      route.push_back(chosen);
      v = topology.link(chosen).from;
    }
    if (way_out) {
      route.push_back(*way_out);
    }
    std::reverse(route.begin(), route.end());
  }
  return impl_->routes.emplace(pair, std::move(route)).first->second;
}

Duration route_latency(const Topology& topology, const Route& route) {
  Duration sum;
  for (const LinkId id : route) {
    sum += topology.link(id).latency;
  }
  return sum;
}

Bandwidth route_bandwidth(const Topology& topology, const Route& route) {
  Bandwidth least = topology.link(route.front()).bandwidth;
  for (const LinkId id : route) {
    least = std::min(least, topology.link(id).bandwidth);
  }
  return least;
}

}  // namespace rackrail::topology
