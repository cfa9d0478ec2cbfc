#include "planner/packing/settled_pairs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/packing/arborescence.hpp"
#include "planner/packing/lanes.hpp"
#include "planner/packing/link_prices.hpp"
#include "planner/packing/pair_shares.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::planner {

namespace {

constexpr double kMostSteepness = 256;
constexpr double kSteeper = 2;  // times, each round
constexpr int kMostSettlings = 12;
constexpr int kIdleSettlings = 3;
constexpr double kSettles = 0.999;      // times the fullest share: less gain is idle
constexpr std::size_t kFirstLooks = 8;  // for ways, while the first trees are placed
constexpr int kMostLifts = 16;
constexpr std::size_t kKeptRounds = 4;   // whose pairs may have unequal shares
constexpr double kWorthSharing = 1.005;  // times the rate of equal shares

/// One tree: of every rank but the root its parent, and the route between them.
struct Grown {
  std::vector<std::uint32_t> parent;
  std::vector<std::uint32_t> route;
  std::vector<std::uint32_t> depth;
};

struct SettledPair {
  std::uint32_t root = 0;
  Grown broadcast;
  Grown reduction;
};

/// The routes of lanes as a tree of their links: each tree of ranks prices all of them, and most of
/// its time would go into adding up again what they have in common.
class LaidOutRoutes {
 public:
  LaidOutRoutes() { steps_.push_back({}); }

  void lay_out(const RankLanes& lanes) {
    for (std::size_t route = last_of_.size(); route < lanes.routes().size(); ++route) {
      last_of_.push_back(kNoStep);
    }
    ends_.clear();
    for (const RankLane& lane : lanes.lanes()) {
      for (const std::uint32_t route : lane.routes) {
        if (last_of_[route] == kNoStep) {
          last_of_[route] = lay_out(lanes.routes()[route]);
        }
        ends_.push_back({route, last_of_[route]});
      }
    }
    price_.resize(steps_.size());
  }

  /// `visit` with the cheapest route of each lane, in their order, and its price.
  template <typename Visit>
  void each_cheapest(const RankLanes& lanes, const LinkPrices& loads, const Visit& visit) {
    const std::vector<double>& of_link = loads.prices();
    for (std::size_t i = 1; i < steps_.size(); ++i) {
      price_[i] = price_[steps_[i].before] + of_link[steps_[i].link];
    }
    const End* next = ends_.data();
    for (const RankLane& lane : lanes.lanes()) {
      double least = std::numeric_limits<double>::infinity();
      std::uint32_t cheapest = 0;
      for (const End* end = next + lane.routes.size(); next != end; ++next) {
        if (const double price = price_[next->step]; price < least) {
          least = price;
          cheapest = next->route;
        }
      }
      visit(lane, cheapest, least);
    }
  }

 private:
  static constexpr std::uint32_t kNoStep = 0xffffffff;

  /// The last step of a route.
  std::uint32_t lay_out(const topology::Route& route) {
    std::uint32_t here = 0;
    for (const LinkId link : route) {
      const auto next = static_cast<std::uint32_t>(steps_.size());
      const auto [known, is_new] =
          step_after_.emplace(std::uint64_t{here} << 32U | link.value(), next);
      if (is_new) {
        steps_.push_back({here, link.value()});
      }
      here = known->second;
    }
    return here;
  }

  /// One link of routes that are the same up to here.
  struct Step {
    std::uint32_t before = 0;  ///< the first has none
    std::uint32_t link = 0;
  };
  struct End {
    std::uint32_t route = 0;
    std::uint32_t step = 0;
  };
  std::vector<Step> steps_;                                      // each after the one before it
  std::unordered_map<std::uint64_t, std::uint32_t> step_after_;  // by a step and the link after it
  std::vector<std::uint32_t> last_of_;                           // steps, by route
  std::vector<End> ends_;      // of all routes of the first lane, then of the second, ...
  std::vector<double> price_;  // up to each step
};

class Settling {
 public:
  Settling(const topology::Topology& topology, const SettledOptions& options)
      : options_(options),
        ranks_(static_cast<std::uint32_t>(topology.rank_count())),
        loads_(topology, options),
        lanes_(topology, loads_.prices()) {
    laid_out_.lay_out(lanes_);
  }

  std::optional<SettledPairs> run() {
    if (!place()) {
      return std::nullopt;
    }
    return SettledPairs{settled(), are_all_roots_};
  }

 private:
  AllReduceForests settled() {
    std::vector<SettledPair> best = pairs_;
    double least = loads_.fullest();
    double steepness = LinkPrices::kFirstSteepness;
    int idle = 0;
    for (int round = 0; round < kMostSettlings && idle < kIdleSettlings && !is_enough(least);
         ++round) {
      steepness = std::min(kMostSteepness, steepness * kSteeper);
      settle(steepness);
      const double now = loads_.fullest();
      idle = now < least * kSettles || steepness < kMostSteepness ? 0 : idle + 1;
      if (now < least) {
        least = now;
        best = pairs_;
      }
    }
    if (!is_enough(least)) {
      if (const auto shares = unequal_shares(least); !shares.empty()) {
        return forests(kept_, shares);
      }
    }
    return forests(best, std::vector<std::int64_t>(best.size(), 1));
  }

  bool is_enough(double fullest) const { return options_.good_enough * fullest <= 1; }

  /// The first trees; false where ranks do not reach each other.
  bool place() {
    const std::vector<std::uint32_t> roots = lanes_.central_ranks(options_.most_far);
    if (roots.empty()) {
      return false;
    }
    are_all_roots_ = roots.size() == ranks_;
    const std::size_t between = std::max<std::size_t>(1, options_.pairs / kFirstLooks);
    for (std::size_t p = 0; p < options_.pairs; ++p) {
      if (p % between == 0 && p > 0) {
        find_lanes();
      }
      pairs_.push_back({roots[p * roots.size() / options_.pairs], {}, {}});
      put_in(pairs_.back());
    }
    return true;
  }

  /// Each pair once where it is cheapest now.
  void settle(double steepness) {
    loads_.set_steepness(steepness);
    find_lanes();
    for (SettledPair& pair : pairs_) {
      add(pair.root, pair.broadcast, -1);
      add(pair.root, pair.reduction, -1);
      put_in(pair);
    }
    const std::size_t most = kKeptRounds * pairs_.size();
    if (kept_.size() >= most) {
      kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(pairs_.size()));
    }
    kept_.insert(kept_.end(), pairs_.begin(), pairs_.end());
  }

  void find_lanes() {
    lanes_.find(loads_.prices());
    laid_out_.lay_out(lanes_);
  }

  void put_in(SettledPair& pair) {
    grow(pair.root, false, pair.broadcast);
    grow(pair.root, true, pair.reduction);
  }

  void add(std::uint32_t root, const Grown& tree, std::int32_t count) {
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      if (v != root) {
        loads_.add(lanes_.routes()[tree.route[v]], count);
      }
    }
  }

  void grow(std::uint32_t root, bool reversed, Grown& tree) {
    price_arcs(root, reversed);
    std::vector<std::uint32_t> in = cheapest_tree(ranks_, root, arcs_).value();
    lift(root, in, tree.depth);
    tree.parent.assign(ranks_, root);
    tree.route.assign(ranks_, 0);
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      if (v != root) {
        tree.parent[v] = arcs_[in[v]].from;
        tree.route[v] = cheapest_route_[in[v]];
      }
    }
    add(root, tree, 1);
  }

  /// From parent to child, by the cheapest known route of each lane.
  void price_arcs(std::uint32_t root, bool reversed) {
    const std::vector<std::uint32_t>& distance = lanes_.distances(root, reversed);
    arcs_.clear();
    cheapest_route_.clear();
    laid_out_.each_cheapest(
        lanes_, loads_, [&](const RankLane& lane, std::uint32_t cheapest, double price) {
          const auto [parent, child] =
              reversed ? std::pair(lane.to, lane.from) : std::pair(lane.from, lane.to);
          const bool leads_away = distance[child] == distance[parent] + 1;
          arcs_.push_back({parent, child, price + (leads_away ? 0 : loads_.detour())});
          cheapest_route_.push_back(cheapest);
        });
  }

  /// Gives ranks parents nearer to the root, over links that are not nearly full or at no cost. The
  /// depth of a parent before is always less than its child's, so there are no cycles.
  void lift(std::uint32_t root, std::vector<std::uint32_t>& in,
            std::vector<std::uint32_t>& depth) const {
    std::vector<double> most(ranks_);
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      most[v] = v == root ? 0 : arcs_[in[v]].price;
    }
    find_depths(root, in, depth);
    for (int i = 0; i < kMostLifts; ++i) {
      std::vector<std::uint32_t> better = in;
      for (std::uint32_t a = 0; a < arcs_.size(); ++a) {
        const PricedArc& arc = arcs_[a];
        if (arc.to == root) {
          continue;
        }
        const PricedArc& now = arcs_[better[arc.to]];
        if (depth[arc.from] + 1 < depth[arc.to] &&
            std::pair(depth[arc.from], arc.price) < std::pair(depth[now.from], now.price) &&
            (arc.price <= most[arc.to] || loads_.has_room(lanes_.routes()[cheapest_route_[a]]))) {
          better[arc.to] = a;
        }
      }
      if (better == in) {
        return;
      }
      in = std::move(better);
      find_depths(root, in, depth);
    }
  }

  void find_depths(std::uint32_t root, const std::vector<std::uint32_t>& in,
                   std::vector<std::uint32_t>& depth) const {
    depth.assign(ranks_, RankLanes::kFar);
    depth[root] = 0;
    std::vector<std::uint32_t> way;
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      std::uint32_t at = v;
      for (; depth[at] == RankLanes::kFar; at = arcs_[in[at]].from) {
        way.push_back(at);
      }
      for (; !way.empty(); way.pop_back()) {
        depth[way.back()] = depth[at] + 1;
        at = way.back();
      }
    }
  }

  /// Shares of the pairs of the last rounds, where they are better than equal ones that fill the
  /// fullest link so far; else none. At most one pair for each link is needed, and others get none.
  std::vector<std::int64_t> unequal_shares(double least) const {
    if (!topology::LinearProgram::is_available()) {
      return {};
    }
    topology::LinearProgram program;
    std::map<LinkId, topology::LinearProgram::Terms> rows;
    for (const SettledPair& pair : kept_) {
      const int share = program.add_variable(static_cast<double>(pairs_.size()), 1);
      std::map<LinkId, double> taken;
      for (const Grown* tree : {&pair.broadcast, &pair.reduction}) {
        for (std::uint32_t v = 0; v < ranks_; ++v) {
          if (v != pair.root) {
            for (const LinkId link : lanes_.routes()[tree->route[v]]) {
              taken[link] += loads_.of_one(link);
            }
          }
        }
      }
      for (const auto& [link, of_link] : taken) {
        rows[link].emplace_back(share, -of_link);
      }
    }
    for (const auto& [link, row] : rows) {
      program.add_row(row, -1);
    }
    const auto whole = program.maximise();
    if (!whole || *whole * least < kWorthSharing * static_cast<double>(pairs_.size())) {
      return {};
    }
    std::vector<double> shares;
    for (std::size_t p = 0; p < kept_.size(); ++p) {
      shares.push_back(std::max(0.0, program.value(static_cast<int>(p))));
    }
    return units_of(std::move(shares));
  }

  AllReduceForests forests(const std::vector<SettledPair>& pairs,
                           const std::vector<std::int64_t>& shares) const {
    AllReduceForests forests;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (shares[p] > 0) {
        forests.broadcast.trees.push_back(tree_of(pairs[p].root, pairs[p].broadcast, shares[p]));
        forests.reduction.trees.push_back(tree_of(pairs[p].root, pairs[p].reduction, shares[p]));
      }
    }
    for (Forest* forest : {&forests.reduction, &forests.broadcast}) {
      forest->routes = lanes_.routes();
      forest->trees_per_rank = 1;
    }
    return forests;
  }

  Tree tree_of(std::uint32_t root, const Grown& grown, std::int64_t units) const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      if (v != root) {
        order.push_back(v);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return grown.depth[a] < grown.depth[b];
    });
    Tree tree{Rank(root), units, {}};
    for (const std::uint32_t v : order) {
      tree.arcs.push_back({Rank(grown.parent[v]), Rank(v), grown.route[v]});
    }
    return tree;
  }

  const SettledOptions& options_;
  std::uint32_t ranks_;
  LinkPrices loads_;
  RankLanes lanes_;
  LaidOutRoutes laid_out_;
  bool are_all_roots_ = false;
  std::vector<SettledPair> pairs_;
  std::vector<SettledPair> kept_;  // of the last rounds
  // At the prices looked at last.
  std::vector<PricedArc> arcs_;
  std::vector<std::uint32_t> cheapest_route_;  // of each arc
};

}  // namespace

std::optional<SettledPairs> settled_pairs(const topology::Topology& topology,
                                          const SettledOptions& options) {
  return Settling(topology, options).run();
}

}  // namespace rackrail::planner
