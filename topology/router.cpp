// Shortest routes, each kept once found.
//
// Ways. shortest_ways.hpp finds them, all that cost the same.
//
// Per destination: walk back from it along tight arcs that keep its width. Where several remain
// (ECMP), a hash of the two ranks decides, or the source's turn (EqualRoutes::kDealt): numbered by
// rack, then by their number in the machine, then by machine, source s takes route s mod n of the
// first n, and with d the product of the numbers of routes before, route (s/d + s) mod n of n more:
// sources that took the same before differ in s/d or, where they are as many as d, in s, as on a
// leaf whose uplinks lead to few spines by many cables each. Within the machine of the source or
// destination, the number of the rank in its machine does, so that GPUs with several near NICs use
// one each, as collective libraries have it.
//
// Cost: that of the ways, and O(links · in-degree) per destination.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/random.hpp"
#include "topology/queries.hpp"
#include "topology/shortest_ways.hpp"

namespace rackrail::topology {

struct Router::Impl {
  Impl(const Topology& t, Distance by, std::uint64_t of_hash, EqualRoutes choice)
      : topology(t), shortest(t, by), seed(of_hash), equal(choice) {
    local_index.resize(t.rank_count());
    for (const RankGroup& host : ranks_by_host(t)) {
      for (std::size_t i = 0; i < host.ranks.size(); ++i) {
        local_index[host.ranks[i].index()] = i;
      }
    }
  }

  /// Of each rank, where routes are dealt out.
  std::size_t turn_of(Rank rank) {
    if (turn.empty()) {
      number_turns();
    }
    return turn[rank.index()];
  }

  void number_turns() {
    turn.resize(topology.rank_count());
    std::vector<std::size_t> host_of(topology.rank_count());
    const std::vector<RankGroup> hosts = ranks_by_host(topology);
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      for (const Rank rank : hosts[h].ranks) {
        host_of[rank.index()] = h;
      }
    }
    std::size_t next = 0;
    for (RankGroup& rack : ranks_by_rack(topology)) {
      std::stable_sort(rack.ranks.begin(), rack.ranks.end(), [&](Rank a, Rank b) {
        return std::pair(local_index[a.index()], host_of[a.index()]) <
               std::pair(local_index[b.index()], host_of[b.index()]);
      });
      for (const Rank rank : rack.ranks) {
        turn[rank.index()] = next++;
      }
    }
  }

  bool all_from_machine(const std::vector<LinkId>& links, Rank rank) const {
    const std::string& machine_of_rank = topology.node(topology.node_of(rank)).host;
    return !machine_of_rank.empty() && std::all_of(links.begin(), links.end(), [&](LinkId id) {
      return topology.node(topology.link(id).from).host == machine_of_rank;
    });
  }

  /// Whether the machine of either end decides between these.
  bool is_inside(const std::vector<LinkId>& links, Rank src, Rank dst) const {
    return all_from_machine(links, dst) || all_from_machine(links, src);
  }

  /// `dealt` is the product of the numbers of routes between which it has chosen before.
  std::size_t choose(const std::vector<LinkId>& links, Rank src, Rank dst, NodeId v, EqualRoutes by,
                     std::size_t& dealt) {
    if (all_from_machine(links, dst)) {
      return local_index[dst.index()] % links.size();
    }
    if (all_from_machine(links, src)) {
      return local_index[src.index()] % links.size();
    }
    if (by == EqualRoutes::kDealt && !topology.rank_of(topology.link(links.front()).from)) {
      const std::size_t own = turn_of(src);
      const std::size_t chosen = (own / dealt + (dealt > 1 ? own : 0)) % links.size();
      dealt *= links.size();
      return chosen;
    }
    const std::uint64_t pair = (std::uint64_t{src.value()} << 32U) | dst.value();
    return random_bits(seed == 0 ? pair : mix64(pair ^ mix64(seed)), v.value()) % links.size();
  }

  const Topology& topology;
  ShortestWays shortest;
  const std::uint64_t seed;
  const EqualRoutes equal;
  std::vector<std::size_t> turn;                    // of each rank, once routes are dealt
  std::unordered_map<std::uint64_t, Route> routes;  // by source and destination
  std::vector<std::size_t> local_index;             // of each rank in its machine
};

Router::Router(const Topology& topology, std::uint64_t seed)
    : Router(topology, Distance::kLatency, seed) {}
Router::Router(const Topology& topology, Distance distance, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(topology, distance, seed, EqualRoutes::kHashed)) {}
Router::Router(const Topology& topology, Distance distance, EqualRoutes equal)
    : impl_(std::make_unique<Impl>(topology, distance, 0, equal)) {}
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
  if (const auto ways = impl_->shortest.find(src, dst)) {
    std::size_t dealt = 1;
    for (NodeId v = ways->end; v != ways->root;) {
      const std::vector<LinkId> links = ways->links_into(v);
      const LinkId chosen =
          links[links.size() == 1 ? 0 : impl_->choose(links, src, dst, v, impl_->equal, dealt)];
      route.push_back(chosen);
      v = impl_->topology.link(chosen).from;
    }
    if (ways->way_out) {
      route.push_back(*ways->way_out);
    }
    std::reverse(route.begin(), route.end());
  }
  return impl_->routes.emplace(pair, std::move(route)).first->second;
}

std::vector<Route> Router::equal_routes(Rank src, Rank dst, std::size_t most) {
  std::vector<Route> found;
  const Topology& topology = impl_->topology;
  const auto ways = impl_->shortest.find(src, dst);
  if (!ways) {
    return found;
  }
  Route backwards;
  const auto walk = [&](const auto& self, NodeId v, std::size_t dealt) -> void {
    if (found.size() == most) {
      return;
    }
    if (v == ways->root) {
      found.emplace_back(backwards.rbegin(), backwards.rend());
      if (ways->way_out) {
        found.back().insert(found.back().begin(), *ways->way_out);
      }
      return;
    }
    const std::vector<LinkId> links = ways->links_into(v);
    const bool is_decided = links.size() == 1 || impl_->is_inside(links, src, dst);
    const std::size_t first =
        links.size() == 1 ? 0 : impl_->choose(links, src, dst, v, EqualRoutes::kDealt, dealt);
    for (std::size_t i = 0; i < (is_decided ? 1 : links.size()); ++i) {
      backwards.push_back(links[(first + i) % links.size()]);
      self(self, topology.link(backwards.back()).from, dealt);
      backwards.pop_back();
    }
  };
  walk(walk, ways->end, 1);
  return found;
}

std::vector<LinkShare> Router::spread(Rank src, Rank dst) {
  std::vector<LinkShare> shares;
  const Topology& topology = impl_->topology;
  const auto ways = impl_->shortest.find(src, dst);
  if (!ways) {
    return shares;
  }
  if (ways->way_out) {
    shares.push_back({*ways->way_out, 1});
  }
  // Backwards, vertices of the highest cost first: each is met after all that lie behind it.
  struct Vertex {
    std::vector<LinkId> in;
    double routes_behind = 0;
    double routes_before = 0;
  };
  std::map<std::pair<WayCost, NodeId>, Vertex> vertices;
  const auto entry = [&](NodeId v) { return std::pair(ways->label(v).cost, v); };
  vertices[entry(ways->end)].routes_behind = 1;
  for (auto at = std::prev(vertices.end());; --at) {
    const NodeId v = at->first.second;
    if (v != ways->root) {
      std::vector<LinkId> links = ways->links_into(v);
      if (links.size() > 1 && impl_->is_inside(links, src, dst)) {
        std::size_t dealt = 1;
        links = {links[impl_->choose(links, src, dst, v, impl_->equal, dealt)]};
      }
      for (const LinkId link : links) {
        vertices[entry(topology.link(link).from)].routes_behind += at->second.routes_behind;
      }
      at->second.in = std::move(links);
    }
    if (at == vertices.begin()) {
      break;
    }
  }
  const double all = vertices.begin()->second.routes_behind;
  vertices.begin()->second.routes_before = 1;
  for (auto& [of, vertex] : vertices) {
    for (const LinkId link : vertex.in) {
      const double before = vertices[entry(topology.link(link).from)].routes_before;
      vertex.routes_before += before;
      shares.push_back({link, before * vertex.routes_behind / all});
    }
  }
  return shares;
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
    const Link& link = topology.link(id);
    least = std::min(least, link.bandwidth);
    if (link.flow_bandwidth > Bandwidth(0)) {
      least = std::min(least, link.flow_bandwidth);
    }
  }
  return least;
}

Staging staging_between(const Topology& topology, Rank src, Rank dst,
                        std::span<const LinkId> links) {
  const Node& from = topology.node(topology.node_of(src));
  const Node& to = topology.node(topology.node_of(dst));
  const bool is_inside = !from.host.empty() && from.host == to.host;
  const bool has_nics = std::any_of(links.begin(), links.end(), [&](LinkId link) {
    return topology.link(link).kind != LinkKind::kNvlink;
  });
  return is_inside || !has_nics ? Staging{} : Staging{from.host_staging, to.host_staging};
}

}  // namespace rackrail::topology
