#include "planner/packing/forest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/demand_check.hpp"
#include "planner/packing/forest_building.hpp"
#include "planner/packing/logical_network.hpp"
#include "topology/flow_network.hpp"

namespace rackrail::planner {

namespace {

using topology::Capacity;

// Room beyond what the bound leaves, tried in turn until trees are found.
constexpr double kRoom[] = {1, 1.005, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2};
constexpr int kMostShallowTries = 4;
constexpr std::size_t kManyRanks = 32;
// Trees per second and per byte per second: a ratio of two integers, of which this is the lower.
constexpr std::int64_t kScale = std::int64_t{1} << 40U;
constexpr std::int64_t kLargestRatio = std::int64_t{1} << 20U;
constexpr double kForRounding = 1e-4;  // rates of a linear program are not quite integers

/// Links as arcs that hold `units_of` them.
template <typename UnitsOf>
LogicalNetwork network_of(const topology::Topology& topology, std::int64_t trees_per_rank,
                          bool reversed, const UnitsOf& units_of) {
  std::vector<std::int64_t> roots(topology.node_count());
  std::vector<bool> is_terminal(topology.node_count());
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    roots[topology.node_of(Rank(r)).index()] = trees_per_rank;
    is_terminal[topology.node_of(Rank(r)).index()] = true;
  }
  LogicalNetwork network(std::move(roots), std::move(is_terminal));
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (link.kind == topology::LinkKind::kShared) {
      continue;
    }
    if (const Capacity units = units_of(LinkId(l)); units > 0) {
      network.add_link((reversed ? link.to : link.from).value(),
                       (reversed ? link.from : link.to).value(), static_cast<std::int64_t>(units),
                       LinkId(l));
    }
  }
  return network;
}

/// What the links allow, given how many trees each carries.
Bandwidth algbw_of(const Forest& forest, const topology::Topology& topology) {
  const std::vector<std::int64_t> loads = loads_of(forest, topology.link_count());
  const auto trees =
      static_cast<Capacity>(forest.trees_per_rank) * static_cast<Capacity>(topology.rank_count());
  Capacity least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t l = 0; l < loads.size(); ++l) {
    if (loads[l] > 0) {
      least =
          std::min(least, topology.link(LinkId(l)).bandwidth.bytes_per_second() * trees / loads[l]);
    }
  }
  return Bandwidth(static_cast<std::int64_t>(least));
}

/// The same with p and q, rounded where it is known to some digits only, or by large numbers.
topology::AllGatherBound fraction_of(topology::AllGatherBound bound, std::size_t ranks) {
  if (bound.p == 0 || bound.p > kLargestRatio) {
    bound.p = static_cast<std::int64_t>(ranks);
    bound.q = bound.algbw.bytes_per_second();
  }
  return bound;
}

/// Links on the longest of the shortest ways from some ranks to all.
std::size_t diameter(const topology::Topology& topology) {
  constexpr std::size_t kSample = 16;
  const std::size_t step = std::max<std::size_t>(1, topology.rank_count() / kSample);
  std::size_t longest = 0;
  for (std::size_t r = 0; r < topology.rank_count(); r += step) {
    std::vector<std::size_t> distance(topology.node_count(), SIZE_MAX);
    std::vector<NodeId> queue{topology.node_of(Rank(r))};
    distance[queue.front().index()] = 0;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const std::size_t here = distance[queue[i].index()];
      longest = topology.rank_of(queue[i]) ? std::max(longest, here) : longest;
      for (const LinkId id : topology.links_out_of(queue[i])) {
        const topology::Link& link = topology.link(id);
        if (link.kind != topology::LinkKind::kShared && distance[link.to.index()] == SIZE_MAX) {
          distance[link.to.index()] = here + 1;
          queue.push_back(link.to);
        }
      }
    }
  }
  return longest;
}

class ForestSearch {
 public:
  ForestSearch(const topology::Topology& topology, const ForestOptions& options, bool reversed)
      : topology_(topology),
        options_(options),
        is_reversed_(reversed),
        bound_(fraction_of(reversed ? topology::reducescatter_optimum(topology)
                                    : topology::allgather_optimum(topology),
                           topology.rank_count())),
        shallow_(2 * diameter(topology) + 4),
        shallow_tries_(topology.rank_count() > kManyRanks ? 1 : kMostShallowTries) {}

  Forest run() {
    for (const double room : kRoom) {
      if (best_ && is_good_enough(*best_) && room * options_.good_enough > 1) {
        break;
      }
      for (std::int64_t k = 1; k <= options_.most_trees_per_rank; ++k) {
        try_trees(k, room);
        if (best_ && is_enough(*best_)) {
          return std::move(*best_);
        }
      }
      if (best_ && !is_good_enough(*best_) && best_->share_of_bound * room >= 1) {
        break;  // no more than that is left to find
      }
    }
    if (!best_) {
      keep(stars(), 1);
      keep(paths(), 1);
    }
    return std::move(*best_);
  }

 private:
  LogicalNetwork network(std::int64_t k, double room) const {
    const auto scale = static_cast<Capacity>(room * static_cast<double>(kScale));
    // U = k · p/q · room; the numerator is below 2¹²⁷ as p < 2²¹ and bandwidths are below 2⁴⁷.
    const Capacity numerator = static_cast<Capacity>(bound_.p) * k * scale;
    const Capacity denominator = static_cast<Capacity>(bound_.q) * kScale;
    const auto most = static_cast<Capacity>(k) * static_cast<Capacity>(topology_.rank_count());
    return network_of(topology_, k, is_reversed_, [&](LinkId l) {
      return std::min(most, static_cast<Capacity>(topology_.link(l).bandwidth.bytes_per_second()) *
                                numerator / denominator);
    });
  }

  /// With what links carry at the optimum instead of their bandwidths: switches then receive what
  /// they send, but for rounding.
  LogicalNetwork balanced_network(std::int64_t k, double room) const {
    const double trees_per_byte = static_cast<double>(k) * static_cast<double>(bound_.p) /
                                  static_cast<double>(bound_.q) * room;
    return network_of(topology_, k, is_reversed_, [&](LinkId l) {
      return static_cast<Capacity>(bound_.rates[l.index()] * trees_per_byte + kForRounding);
    });
  }

  void try_trees(std::int64_t k, double room) {
    try_trees(network(k, room), k, room);
    if (!bound_.rates.empty() && !(best_ && is_good_enough(*best_))) {
      try_trees(balanced_network(k, room), k, room);
    }
  }

  void try_trees(const LogicalNetwork& asked, std::int64_t k, double room) {
    if (!DemandCheck(asked, asked.terminals()).is_met()) {
      return;
    }
    const std::vector<Removal> removals = removals_for(topology_, options_.pairs, room == 1);
    std::optional<Forest> forest = build_forest(asked, topology_, is_reversed_, removals);
    const bool is_deep = forest && depth_of(*forest) > shallow_;
    if (forest) {
      keep(std::move(*forest), k);
    }
    if (is_deep && options_.pairs == Pairs::kEven && removals.back() == Removal::kExactly &&
        shallow_tries_-- > 0) {
      forest = build_forest(asked, topology_, is_reversed_, {Removal::kExactlyByMany});
      if (forest) {
        keep(std::move(*forest), k);
      }
    }
  }

  /// What is always there: every rank sends to every other one, each pair on the usual route.
  Forest stars() const {
    topology::Router router(topology_);
    Forest forest;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      const Rank root(r);
      Tree tree{root, 1, {}};
      for (std::size_t other = 0; other < topology_.rank_count(); ++other) {
        const Rank rank(other);
        if (rank != root) {
          tree.arcs.push_back({root, rank, static_cast<std::uint32_t>(forest.routes.size())});
          forest.routes.push_back(is_reversed_ ? router.route(rank, root)
                                               : router.route(root, rank));
        }
      }
      forest.trees.push_back(std::move(tree));
    }
    return forest;
  }

  /// Also there: every rank's way round a ring of all.
  Forest paths() const {
    const std::vector<Rank> order = near_order(topology_);
    topology::Router router(topology_);
    Forest forest;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Rank here = order[i];
      const Rank next = order[(i + 1) % order.size()];
      forest.routes.push_back(is_reversed_ ? router.route(next, here) : router.route(here, next));
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      Tree tree{order[i], 1, {}};
      for (std::size_t hop = i; hop + 1 < i + order.size(); ++hop) {
        const std::size_t at = hop % order.size();
        tree.arcs.push_back(
            {order[at], order[(hop + 1) % order.size()], static_cast<std::uint32_t>(at)});
      }
      forest.trees.push_back(std::move(tree));
    }
    return forest;
  }

  bool is_enough(const Forest& forest) const {
    return is_good_enough(forest) && depth_of(forest) <= shallow_;
  }

  bool is_good_enough(const Forest& forest) const {
    return forest.share_of_bound >= options_.good_enough;
  }

  /// Shallow among those that are good enough, else nearer to the bound.
  bool is_better(const Forest& forest, const Forest& than) const {
    if (is_good_enough(forest) && is_good_enough(than)) {
      return depth_of(forest) < depth_of(than);
    }
    return forest.share_of_bound > than.share_of_bound;
  }

  void keep(Forest forest, std::int64_t k) {
    forest.trees_per_rank = k;
    forest.algbw = algbw_of(forest, topology_);
    forest.share_of_bound = static_cast<double>(forest.algbw.bytes_per_second()) /
                            static_cast<double>(bound_.algbw.bytes_per_second());
    if (!best_ || is_better(forest, *best_)) {
      best_ = std::move(forest);
    }
  }

  const topology::Topology& topology_;
  const ForestOptions& options_;
  bool is_reversed_;
  topology::AllGatherBound bound_;
  std::size_t shallow_;  // depth at which no shallower forest is looked for
  int shallow_tries_;    // by many ways through switches, which takes seconds for tens of ranks
  std::optional<Forest> best_;
};

}  // namespace

Forest make_forest(const topology::Topology& topology, const ForestOptions& options,
                   bool reversed) {
  return ForestSearch(topology, options, reversed).run();
}

std::vector<std::string> problems_of(const Forest& forest, const topology::Topology& topology,
                                     bool reversed) {
  std::vector<std::string> problems;
  std::vector<std::int64_t> rooted(topology.rank_count());
  for (const Tree& tree : forest.trees) {
    rooted[tree.root.index()] += tree.units;
    std::vector<bool> has(topology.rank_count());
    has[tree.root.index()] = true;
    for (const TreeArc& arc : tree.arcs) {
      if (!has[arc.from.index()] || has[arc.to.index()]) {
        problems.push_back(fmt::format("a tree of rank {} enters rank {} from rank {} out of turn",
                                       tree.root.value(), arc.to.value(), arc.from.value()));
      }
      has[arc.to.index()] = true;
      NodeId here = topology.node_of(reversed ? arc.to : arc.from);
      for (const LinkId link : forest.routes[arc.route]) {
        if (topology.link(link).from != here) {
          problems.push_back(
              fmt::format("link {} is not the next one on the way from rank {} to {}",
                          topology.link_name(link), arc.from.value(), arc.to.value()));
        }
        here = topology.link(link).to;
      }
      if (here != topology.node_of(reversed ? arc.from : arc.to)) {
        problems.push_back(fmt::format("a route between ranks {} and {} ends at '{}'",
                                       arc.from.value(), arc.to.value(), topology.node(here).name));
      }
    }
    if (tree.arcs.size() + 1 != topology.rank_count()) {
      problems.push_back(
          fmt::format("a tree of rank {} has {} arcs", tree.root.value(), tree.arcs.size()));
    }
  }
  for (std::size_t r = 0; r < rooted.size(); ++r) {
    if (rooted[r] != forest.trees_per_rank) {
      problems.push_back(fmt::format("{} trees start at rank {}, expected {}", rooted[r], r,
                                     forest.trees_per_rank));
    }
  }
  const std::vector<std::int64_t> loads = loads_of(forest, topology.link_count());
  const auto trees =
      static_cast<Capacity>(forest.trees_per_rank) * static_cast<Capacity>(topology.rank_count());
  for (std::size_t l = 0; l < loads.size(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (static_cast<Capacity>(loads[l]) * forest.algbw.bytes_per_second() >
        static_cast<Capacity>(link.bandwidth.bytes_per_second()) * trees) {
      problems.push_back(fmt::format("link {} carries {} trees, too many",
                                     topology.link_name(LinkId(l)), loads[l]));
    }
  }
  return problems;
}

std::size_t depth_of(const Tree& tree) {
  std::size_t deepest = 0;
  std::map<Rank, std::size_t> depth;
  for (const TreeArc& arc : tree.arcs) {
    deepest = std::max(deepest, depth[arc.to] = depth[arc.from] + 1);
  }
  return deepest;
}

std::size_t depth_of(const Forest& forest) {
  std::size_t deepest = 0;
  for (const Tree& tree : forest.trees) {
    deepest = std::max(deepest, depth_of(tree));
  }
  return deepest;
}

std::optional<Forest> mirrored(const Forest& forest, const topology::Topology& topology) {
  // The i-th link from a to b is the opposite of the i-th from b to a.
  std::map<std::pair<NodeId, NodeId>, std::vector<LinkId>> between;
  std::vector<std::size_t> place(topology.link_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    auto& links = between[{link.from, link.to}];
    place[l] = links.size();
    links.push_back(LinkId(l));
  }
  Forest other = forest;
  for (topology::Route& route : other.routes) {
    for (LinkId& id : route) {
      const topology::Link& link = topology.link(id);
      const auto opposite = between.find({link.to, link.from});
      if (opposite == between.end() || opposite->second.size() <= place[id.index()]) {
        return std::nullopt;
      }
      const LinkId back = opposite->second[place[id.index()]];
      if (topology.link(back).bandwidth != link.bandwidth) {
        return std::nullopt;
      }
      id = back;
    }
    std::reverse(route.begin(), route.end());
  }
  return other;
}

}  // namespace rackrail::planner
