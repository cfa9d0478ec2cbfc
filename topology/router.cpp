// Shortest routes with a cache per source.
//
// Model. The cost of a route is (ranks passed through, latency, links), compared in this order. A
// rank in the middle counts in the first place, so a route uses one only where there is no other
// way, and then as few as possible; the machines of a ring or torus thereby reach each other too.
//
// Per source: Dijkstra gives the cost of every vertex. An arc (u, v) is tight when cost(u) + its
// own cost = cost(v); the tight arcs form a DAG that holds all shortest routes. Vertices leave the
// heap in a topological order of it, since every arc adds a link; so `width`, the best bottleneck
// among the shortest routes, is one pass in that order.
//
// Per destination: walk back from it along tight arcs that keep its width. Where several remain
// (ECMP), a hash of the two ranks decides; within the machine of the source or destination, the
// number of the rank in its machine does, so that GPUs with several near NICs use one each, as
// collective libraries have it.
//
// Cost: O(E log V) per source and O(links · in-degree) per destination; 8 + 8 + 4 + 4 bytes per
// vertex are kept for each source.
#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
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

struct Source {
  std::vector<Cost> cost;        // by vertex
  std::vector<Bandwidth> width;  // by vertex: best bottleneck among the shortest routes
  std::vector<Route> routes;     // by destination rank; empty until asked for
};

}  // namespace

struct Router::Impl {
  explicit Impl(const Topology& t) : topology(t), sources(t.rank_count()) {
    local_index.resize(t.rank_count());
    for (const RankGroup& group : ranks_by_host(t)) {
      for (std::size_t i = 0; i < group.ranks.size(); ++i) {
        local_index[group.ranks[i].index()] = i;
      }
    }
  }

  /// Cost of arriving over `link` at its end, where leaving `link.from` for it costs `at_start`.
  Cost extended(const Cost& at_start, const Link& link, NodeId source) const {
    Cost cost = at_start;
    cost.ranks += link.from != source && topology.rank_of(link.from) ? 1 : 0;
    cost.latency += link.latency;
    ++cost.links;
    return cost;
  }

  const Source& explored(Rank src) {
    std::unique_ptr<Source>& slot = sources[src.index()];
    if (slot) return *slot;
    auto found = std::make_unique<Source>();
    found->cost.resize(topology.node_count());
    found->width.resize(topology.node_count());
    found->routes.resize(topology.rank_count());

    const NodeId start = topology.node_of(src);
    using Entry = std::pair<Cost, NodeId>;
    const auto later = [](const Entry& a, const Entry& b) {
      return b.first < a.first || (a.first == b.first && b.second < a.second);
    };
    std::priority_queue<Entry, std::vector<Entry>, decltype(later)> queue(later);
    found->cost[start.index()] = Cost{0, 0, Duration(0)};
    found->width[start.index()] = Bandwidth(std::numeric_limits<std::int64_t>::max());
    queue.push({found->cost[start.index()], start});
    while (!queue.empty()) {
      const auto [cost, v] = queue.top();
      queue.pop();
      if (!(cost == found->cost[v.index()])) continue;  // a cheaper way was found since
      for (const LinkId id : topology.links_out_of(v)) {
        const Link& link = topology.link(id);
        if (link.kind == LinkKind::kShared) continue;  // a resource, not a way
        const Cost next = extended(cost, link, start);
        Cost& known = found->cost[link.to.index()];
        Bandwidth& width = found->width[link.to.index()];
        const Bandwidth through = std::min(found->width[v.index()], link.bandwidth);
        if (next < known) {
          known = next;
          width = through;
          queue.push({next, link.to});
        } else if (next == known) {
          width = std::max(width, through);
        }
      }
    }
    slot = std::move(found);
    return *slot;
  }

  /// Tight links into v that keep the width, in order of their ids.
  std::vector<LinkId> candidates(const Source& source, NodeId start, NodeId v,
                                 Bandwidth width) const {
    std::vector<LinkId> list;
    for (const LinkId id : topology.links_into(v)) {
      const Link& link = topology.link(id);
      const Cost& before = source.cost[link.from.index()];
      if (link.kind != LinkKind::kShared && before.is_reached() &&
          extended(before, link, start) == source.cost[v.index()] &&
          std::min(source.width[link.from.index()], link.bandwidth) >= width) {
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
  std::vector<std::unique_ptr<Source>> sources;  // by rank, made when first asked for
  std::vector<std::size_t> local_index;          // of each rank in its machine
};

Router::Router(const Topology& topology) : impl_(std::make_unique<Impl>(topology)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

const Route& Router::route(Rank src, Rank dst) {
  const NodeId start = impl_->topology.node_of(src);
  const NodeId end = impl_->topology.node_of(dst);
  const Source& source = impl_->explored(src);
  Route& route = impl_->sources[src.index()]->routes[dst.index()];
  if (!route.empty() || src == dst) {
    return route;
  }
  if (!source.cost[end.index()].is_reached()) {
    throw ConfigError(ErrorContext{"", "cluster '" + impl_->topology.name() + "'",
                                   "no way from '" + impl_->topology.node(start).name + "' to '" +
                                       impl_->topology.node(end).name + "'",
                                   "a connected graph"});
  }
  const Bandwidth width = source.width[end.index()];
  for (NodeId v = end; v != start;) {
    const std::vector<LinkId> links = impl_->candidates(source, start, v, width);
    const LinkId chosen = links[links.size() == 1 ? 0 : impl_->choose(links, src, dst, v)];
    route.push_back(chosen);
    v = impl_->topology.link(chosen).from;
  }
  std::reverse(route.begin(), route.end());
  return route;
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
