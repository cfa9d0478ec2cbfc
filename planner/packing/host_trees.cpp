#include "planner/packing/host_trees.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

using topology::Route;
using topology::Topology;

constexpr std::size_t kFewestHostsJoined = 3;
constexpr std::size_t kMostHostsJoined = 16;
constexpr std::size_t kMostRanksOfHosts = 64;
constexpr std::size_t kMostCopies = 16;  // of a tree between hosts
constexpr double kWorthLooking = 0.95;   // of the best rate found
// Few trees, or as near to the optimum as can be.
constexpr ForestOptions kBetweenHosts[] = {{}, {.most_trees_per_rank = 16, .good_enough = 0.9999}};

/// The cluster with each host as one vertex.
class HostNetwork {
 public:
  explicit HostNetwork(const Topology& topology) : topology_(topology), hosts_("hosts") {
    find_vertices();
    join_links();
  }

  const Topology& hosts() const { return hosts_; }
  std::size_t vertex_of(NodeId node) const { return vertex_of_[node.index()]; }
  const std::vector<Rank>& members(Rank host) const { return members_[host.index()]; }
  /// The links that became one.
  const std::vector<LinkId>& links_of(LinkId joined) const { return links_[joined.index()]; }

 private:
  void find_vertices() {
    std::map<std::string, NodeId> by_host;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      const std::string& host = topology_.node(topology_.node_of(Rank(r))).host;
      const auto known = by_host.find(host);
      if (host.empty() || known == by_host.end()) {
        const NodeId node = hosts_.add_node(
            {.name = "host" + std::to_string(members_.size()), .kind = topology::NodeKind::kGpu});
        hosts_.add_rank(node);
        members_.emplace_back();
        if (!host.empty()) {
          by_host.emplace(host, node);
        }
        own_[topology_.node_of(Rank(r))] = node;
        members_.back().push_back(Rank(r));
      } else {
        own_[topology_.node_of(Rank(r))] = known->second;
        members_[hosts_.rank_of(known->second)->index()].push_back(Rank(r));
      }
    }
    for (std::size_t v = 0; v < topology_.node_count(); ++v) {
      const topology::Node& node = topology_.node(NodeId(v));
      const auto host = by_host.find(node.host);
      const auto own = own_.find(NodeId(v));
      if (own != own_.end()) {
        vertex_of_.push_back(own->second.index());
      } else if (!node.host.empty() && host != by_host.end()) {
        vertex_of_.push_back(host->second.index());
      } else {
        vertex_of_.push_back(hosts_
                                 .add_node({.name = "switch" + std::to_string(v),
                                            .kind = topology::NodeKind::kSwitch})
                                 .index());
      }
    }
  }

  void join_links() {
    std::map<std::pair<std::size_t, std::size_t>, std::vector<LinkId>> between;
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const topology::Link& link = topology_.link(LinkId(l));
      if (vertex_of(link.from) != vertex_of(link.to) && link.kind != topology::LinkKind::kShared) {
        between[{vertex_of(link.from), vertex_of(link.to)}].push_back(LinkId(l));
      }
    }
    for (auto& [ends, links] : between) {
      topology::Link joined = topology_.link(links.front());
      joined.from = NodeId(ends.first);
      joined.to = NodeId(ends.second);
      std::int64_t bytes = 0;
      for (const LinkId link : links) {
        bytes += topology_.link(link).bandwidth.bytes_per_second();
      }
      joined.bandwidth = Bandwidth(bytes);
      hosts_.add_link(joined);
      links_.push_back(std::move(links));
    }
  }

  const Topology& topology_;
  Topology hosts_;
  std::map<NodeId, NodeId> own_;
  std::vector<std::size_t> vertex_of_;
  std::vector<std::vector<Rank>> members_;
  std::vector<std::vector<LinkId>> links_;
};

/// Ways inside hosts: from a rank to others, and to where links leave it, or the other way round.
class InsideWays {
 public:
  InsideWays(const Topology& topology, const HostNetwork& network)
      : topology_(topology), network_(network) {}

  /// The shortest within the host of the first, past no other rank.
  std::optional<Route> way(NodeId from, NodeId to) const {
    std::map<NodeId, LinkId> into;
    std::vector<NodeId> queue{from};
    for (std::size_t i = 0; i < queue.size() && queue.back() != to; ++i) {
      if (i > 0 && topology_.rank_of(queue[i])) {
        continue;
      }
      for (const LinkId id : topology_.links_out_of(queue[i])) {
        const topology::Link& link = topology_.link(id);
        if (link.kind != topology::LinkKind::kShared && link.to != from &&
            network_.vertex_of(link.to) == network_.vertex_of(from) && !into.contains(link.to)) {
          into.emplace(link.to, id);
          queue.push_back(link.to);
        }
      }
    }
    Route route;
    for (NodeId at = to; at != from; at = topology_.link(route.back()).from) {
      const auto last = into.find(at);
      if (last == into.end()) {
        return std::nullopt;
      }
      route.push_back(last->second);
    }
    std::reverse(route.begin(), route.end());
    return route;
  }

  struct Exit {
    Rank rank;
    Route route;
  };
  /// The rank that is nearest to an end of a link, and its way there, or from there.
  std::optional<Exit> nearest(Rank host, NodeId end, bool leads_out) const {
    std::optional<Exit> best;
    for (const Rank rank : network_.members(host)) {
      const NodeId node = topology_.node_of(rank);
      auto route = leads_out ? way(node, end) : way(end, node);
      if (route && (!best || route->size() < best->route.size())) {
        best = Exit{rank, std::move(*route)};
      }
    }
    return best;
  }

 private:
  const Topology& topology_;
  const HostNetwork& network_;
};

/// Trees of ranks being made of one forest between hosts.
class RankTrees {
 public:
  RankTrees(const Topology& topology, const HostNetwork& network, bool is_reversed)
      : topology_(topology),
        network_(network),
        ways_(topology, network),
        is_reversed_(is_reversed) {}

  /// Copy `copy` of a tree between hosts, from a rank of its root.
  bool add(const Forest& between, const Tree& tree, std::size_t copy, Rank root) {
    Tree made{root, tree.units, {}};
    std::map<Rank, Rank> hub{{tree.root, root}};  // by host
    std::map<Rank, std::vector<Rank>> reached{{tree.root, {root}}};
    std::map<Rank, std::vector<TreeArc>> leaving;
    for (const TreeArc& arc : tree.arcs) {
      const auto ends = crossing(between.routes[arc.route], arc, copy);
      if (!ends) {
        return false;
      }
      std::vector<Rank>& in_host = reached[arc.from];
      if (std::ranges::find(in_host, ends->from) == in_host.end()) {
        if (!add_inside(made, hub.at(arc.from), ends->from)) {
          return false;
        }
        in_host.push_back(ends->from);
      }
      made.arcs.push_back(*ends);
      hub.emplace(arc.to, ends->to);
      reached[arc.to] = {ends->to};
    }
    for (const auto& [host, in_host] : reached) {
      for (const Rank rank : network_.members(host)) {
        if (std::ranges::find(in_host, rank) == in_host.end() &&
            !add_inside(made, hub.at(host), rank)) {
          return false;
        }
      }
    }
    forest_.trees.push_back(std::move(made));
    return true;
  }

  /// The rank by which a tree's first arc leaves its root.
  std::optional<Rank> first_of(const Forest& between, const Tree& tree, std::size_t copy) {
    const auto ends = crossing(between.routes[tree.arcs.front().route], tree.arcs.front(), copy);
    return ends ? std::optional(ends->from) : std::nullopt;
  }

  Forest take() {
    forest_.trees_per_rank = 1;
    return std::move(forest_);
  }

 private:
  std::uint32_t number(const Route& route) {
    const auto [known, is_new] =
        numbers_.emplace(route, static_cast<std::uint32_t>(forest_.routes.size()));
    if (is_new) {
      forest_.routes.push_back(route);
    }
    return known->second;
  }

  bool add_inside(Tree& tree, Rank from, Rank to) {
    const NodeId a = topology_.node_of(is_reversed_ ? to : from);
    const NodeId b = topology_.node_of(is_reversed_ ? from : to);
    const auto route = ways_.way(a, b);
    if (route) {
      tree.arcs.push_back({from, to, number(*route)});
    }
    return route.has_value();
  }

  /// An arc between hosts as one of ranks.
  std::optional<TreeArc> crossing(const Route& joined, const TreeArc& arc, std::size_t copy) {
    const Rank first = is_reversed_ ? arc.to : arc.from;
    const Rank last = is_reversed_ ? arc.from : arc.to;
    Route middle;
    for (const LinkId link : joined) {
      const std::vector<LinkId>& links = network_.links_of(link);
      middle.push_back(links[copy % links.size()]);
    }
    const auto out = ways_.nearest(first, topology_.link(middle.front()).from, true);
    const auto in = ways_.nearest(last, topology_.link(middle.back()).to, false);
    if (!out || !in) {
      return std::nullopt;
    }
    Route whole = out->route;
    whole.insert(whole.end(), middle.begin(), middle.end());
    whole.insert(whole.end(), in->route.begin(), in->route.end());
    const TreeArc made{out->rank, in->rank, number(whole)};
    return is_reversed_ ? TreeArc{made.to, made.from, made.route} : made;
  }

  const Topology& topology_;
  const HostNetwork& network_;
  InsideWays ways_;
  bool is_reversed_;
  Forest forest_;
  std::map<Route, std::uint32_t> numbers_;
};

std::size_t copies_of(const AllReduceForests& between, const HostNetwork& network) {
  std::size_t copies = 1;
  for (const Forest* forest : {&between.reduction, &between.broadcast}) {
    for (const Route& route : forest->routes) {
      for (const LinkId link : route) {
        copies = std::lcm(copies, network.links_of(link).size());
        if (copies > kMostCopies) {
          return kMostCopies;
        }
      }
    }
  }
  return copies;
}

/// Trees of the two forests that are taken together, with the units of each pair.
struct PairOfTrees {
  const Tree* reduction;
  const Tree* broadcast;
  std::int64_t units;
};

/// None where a root has another share of the reduction than of the broadcast.
std::optional<std::vector<PairOfTrees>> pairs_of(const AllReduceForests& forests) {
  std::map<Rank, std::vector<std::pair<const Tree*, std::int64_t>>> reductions;
  const auto whole = [](const Forest& forest) {
    std::int64_t units = 0;
    for (const Tree& tree : forest.trees) {
      units += tree.units;
    }
    return units;
  };
  const std::int64_t of_reduction = whole(forests.reduction);
  const std::int64_t of_broadcast = whole(forests.broadcast);
  const std::int64_t common = std::gcd(of_reduction, of_broadcast);
  for (const Tree& tree : forests.reduction.trees) {
    reductions[tree.root].emplace_back(&tree, tree.units * (of_broadcast / common));
  }
  std::vector<PairOfTrees> pairs;
  for (const Tree& tree : forests.broadcast.trees) {
    std::int64_t left = tree.units * (of_reduction / common);
    auto& open = reductions[tree.root];
    while (left > 0 && !open.empty()) {
      const std::int64_t taken = std::min(left, open.front().second);
      pairs.push_back({open.front().first, &tree, taken});
      left -= taken;
      open.front().second -= taken;
      if (open.front().second == 0) {
        open.erase(open.begin());
      }
    }
    if (left > 0) {
      return std::nullopt;  // of another root then, too: both have as many units in all
    }
  }
  return pairs;
}

std::optional<AllReduceForests> of_ranks(const AllReduceForests& between,
                                         const HostNetwork& network, const Topology& topology) {
  RankTrees reduction(topology, network, true);
  RankTrees broadcast(topology, network, false);
  const std::size_t copies = copies_of(between, network);
  const auto pairs = pairs_of(between);
  if (!pairs) {
    return std::nullopt;
  }
  for (const PairOfTrees& pair : *pairs) {
    Tree up = *pair.reduction;
    Tree down = *pair.broadcast;
    up.units = down.units = pair.units;
    for (std::size_t copy = 0; copy < copies; ++copy) {
      const auto root = reduction.first_of(between.reduction, up, copy);
      if (!root || !reduction.add(between.reduction, up, copy, *root) ||
          !broadcast.add(between.broadcast, down, copy, *root)) {
        return std::nullopt;
      }
    }
  }
  AllReduceForests forests{reduction.take(), broadcast.take(), {}};
  set_rate(forests, topology);
  return forests;
}

}  // namespace

std::vector<AllReduceForests> host_forests(const Topology& topology) {
  std::vector<AllReduceForests> found;
  if (topology.rank_count() > kMostRanksOfHosts) {
    return found;
  }
  const HostNetwork network(topology);
  const std::size_t hosts = network.hosts().rank_count();
  if (hosts < kFewestHostsJoined || hosts > kMostHostsJoined || hosts == topology.rank_count()) {
    return found;
  }
  for (const ForestOptions& options : kBetweenHosts) {
    auto forests = of_ranks(allreduce_forests(network.hosts(), options).back(), network, topology);
    if (forests && std::ranges::find(found, *forests) == found.end()) {
      found.push_back(std::move(*forests));
    }
  }
  Bandwidth fastest;
  for (const AllReduceForests& forests : found) {
    fastest = std::max(fastest, forests.algbw);
  }
  std::erase_if(found, [&](const AllReduceForests& forests) {
    return static_cast<double>(forests.algbw.bytes_per_second()) <
           kWorthLooking * static_cast<double>(fastest.bytes_per_second());
  });
  return found;
}

}  // namespace rackrail::planner
