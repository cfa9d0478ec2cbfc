#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"
#include "base/random.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {

namespace {

struct Cost {
  std::int64_t through_ranks = 0;  ///< rank vertices passed on the way: avoided before all else
  std::int64_t latency = 0;
  std::int64_t hops = 0;
  auto operator<=>(const Cost&) const = default;
};

constexpr Cost kUnreached{std::numeric_limits<std::int64_t>::max(), 0, 0};

}  // namespace

struct Router::Impl {
  explicit Impl(const Topology& t) : topology(t) {}

  // Cost of the best way from a source to every vertex.
  const std::vector<Cost>& costs_from(Rank source) {
    auto [it, added] = costs.try_emplace(source.value());
    if (added) {
      it->second = dijkstra(topology.node_of(source));
    }
    return it->second;
  }

  Cost extended(const Cost& cost, const Link& link, NodeId source) const {
    const bool passes_rank = link.from != source && topology.rank_of(link.from).has_value();
    return {cost.through_ranks + (passes_rank ? 1 : 0), cost.latency + link.latency.picoseconds(),
            cost.hops + 1};
  }

  std::vector<Cost> dijkstra(NodeId source) const {
    std::vector<Cost> best(topology.node_count(), kUnreached);
    using Entry = std::pair<Cost, std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    best[source.index()] = Cost{};
    open.emplace(Cost{}, source.value());
    while (!open.empty()) {
      const auto [cost, at] = open.top();
      open.pop();
      if (cost != best[at]) {
        continue;
      }
      for (const LinkId id : topology.links_out_of(NodeId(at))) {
        const Link& link = topology.link(id);
        const Cost next = extended(cost, link, source);
        if (next < best[link.to.index()]) {
          best[link.to.index()] = next;
          open.emplace(next, link.to.value());
        }
      }
    }
    return best;
  }

  // Walks back from dst; among links of equal cost the widest, and among those one by the hash.
  Route trace(Rank src, Rank dst) {
    const std::vector<Cost>& best = costs_from(src);
    const NodeId source = topology.node_of(src);
    NodeId at = topology.node_of(dst);
    if (best[at.index()] == kUnreached) {
      throw ConfigError(
          ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                       fmt::format("no way from '{}' to '{}'", topology.node(source).name,
                                   topology.node(at).name),
                       "a connected graph"});
    }
    const std::uint64_t key = (static_cast<std::uint64_t>(src.value()) << 32U) | dst.value();
    Route route;
    std::vector<LinkId> equal;
    while (at != source) {
      equal.clear();
      Bandwidth widest;
      for (const LinkId id : topology.links_into(at)) {
        const Link& link = topology.link(id);
        const Cost& before = best[link.from.index()];
        if (before == kUnreached || extended(before, link, source) != best[at.index()]) {
          continue;
        }
        if (link.bandwidth > widest) {
          widest = link.bandwidth;
          equal.clear();
        }
        if (link.bandwidth == widest) {
          equal.push_back(id);
        }
      }
      const LinkId chosen = equal[random_bits(key, route.size()) % equal.size()];
      route.push_back(chosen);
      at = topology.link(chosen).from;
    }
    std::reverse(route.begin(), route.end());
    return route;
  }

  const Topology& topology;
  std::unordered_map<std::uint32_t, std::vector<Cost>> costs;
  std::unordered_map<std::uint64_t, Route> routes;
};

Router::Router(const Topology& topology) : impl_(std::make_unique<Impl>(topology)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

const Route& Router::route(Rank src, Rank dst) {
  const std::uint64_t key = (static_cast<std::uint64_t>(src.value()) << 32U) | dst.value();
  auto [it, added] = impl_->routes.try_emplace(key);
  if (added && src != dst) {
    it->second = impl_->trace(src, dst);
  }
  return it->second;
}

Duration route_latency(const Topology& topology, const Route& route) {
  Duration sum;
  for (const LinkId id : route) {
    sum += topology.link(id).latency;
  }
  return sum;
}

Bandwidth route_bandwidth(const Topology& topology, const Route& route) {
  Bandwidth narrowest = topology.link(route.front()).bandwidth;
  for (const LinkId id : route) {
    narrowest = std::min(narrowest, topology.link(id).bandwidth);
  }
  return narrowest;
}

}  // namespace rackrail::topology
