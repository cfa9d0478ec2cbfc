#include "planner/packing/shallow_trees.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/packing/ways.hpp"

namespace rackrail::planner {

namespace {

constexpr int kDoublings = 5;  // of the exponent: loads count with their 32nd power
constexpr int kMostSweeps = 32;
constexpr std::size_t kTreesForPrices = 8;  // of each rank, for which ways are looked for once
constexpr int kIdleSweeps = 3;              // rounds in a row that gain less than that:
constexpr int kIdleOnceGood = 2;            // where the trees are good enough
constexpr double kGain = 0.999;             // times the load of the fullest link
constexpr double kFull = 1 + 1e-9;          // of what a link carries at the bound
constexpr double kCheaperArc = 1 - 1e-9;    // times what another arc costs

/// Ranks of one tree.
struct Branches {
  std::uint32_t root = 0;
  std::vector<std::uint32_t> parent;
  std::vector<std::uint32_t> route;  ///< from there
  std::vector<std::size_t> depth;
  std::vector<std::uint32_t> children;
};

class Reattaching {
 public:
  Reattaching(const topology::Topology& topology, bool reversed, const ShallowOptions& options)
      : topology_(topology),
        is_reversed_(reversed),
        options_(options),
        ranks_(static_cast<std::uint32_t>(topology.rank_count())),
        finder_(topology, routes_),
        ways_(std::size_t{ranks_} * ranks_) {
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const topology::Link& link = topology.link(LinkId(l));
      loads_.push_back(
          {static_cast<double>(link.bandwidth.bytes_per_second()) * options.trees_per_byte, 0});
    }
    prices_.resize(loads_.size());
    for (std::size_t l = 0; l < loads_.size(); ++l) {
      reprice(l);
    }
  }

  std::optional<Forest> run() {
    if (!plant_stars()) {
      return std::nullopt;
    }
    double least = fullest();
    int idle = 0;
    for (int round = 0; round < kMostSweeps && least > kFull; ++round) {
      if (idle >= (is_good_enough(least) ? kIdleOnceGood : kIdleSweeps)) {
        break;
      }
      for (std::size_t tree = 0; tree < trees_.size(); ++tree) {
        if (tree % (kTreesForPrices * ranks_) == 0) {
          find_ways();
        }
        for (std::uint32_t v = 0; v < ranks_; ++v) {
          if (v != trees_[tree].root) {
            reattach(trees_[tree], v);
          }
        }
      }
      const double now = fullest();
      idle = now < least * kGain ? 0 : idle + 1;
      least = std::min(least, now);
    }
    return is_good_enough(fullest()) ? std::optional(forest()) : std::nullopt;
  }

 private:
  /// Of a link.
  struct Load {
    double most = 0;   ///< trees, at the bound
    double trees = 0;  ///< over it
  };

  static double steep(double share) {
    for (int i = 0; i < kDoublings; ++i) {
      share *= share;
    }
    return share;
  }

  void reprice(std::size_t link) {
    const Load& load = loads_[link];
    prices_[link] = steep((load.trees + 1) / load.most) - steep(load.trees / load.most);
  }

  bool is_good_enough(double fullest) const { return options_.good_enough * fullest <= 1; }

  double fullest() const {
    double most = 0;
    for (const Load& load : loads_) {
      most = std::max(most, load.trees / load.most);
    }
    return most;
  }

  std::vector<std::uint32_t>& ways(std::uint32_t parent, std::uint32_t child) {
    return ways_[std::size_t{parent} * ranks_ + child];
  }

  /// Those that are cheapest now, besides those that were.
  void find_ways() {
    finder_.find(prices_);
    for (std::size_t route = links_begin_.size() - 1; route < routes_.size(); ++route) {
      for (const LinkId link : routes_[route]) {
        links_.push_back(link.value());
      }
      links_begin_.push_back(links_.size());
    }
    for (std::size_t a = 0; a < finder_.arcs().size(); ++a) {
      const PricedArc& arc = finder_.arcs()[a];
      auto& known = is_reversed_ ? ways(arc.to, arc.from) : ways(arc.from, arc.to);
      if (std::ranges::find(known, finder_.route_of(a)) == known.end()) {
        known.push_back(finder_.route_of(a));
      }
    }
  }

  bool plant_stars() {
    find_ways();
    for (std::int64_t unit = 0; unit < options_.trees_per_rank; ++unit) {
      for (std::uint32_t root = 0; root < ranks_; ++root) {
        Branches tree{root, std::vector(ranks_, root), std::vector(ranks_, 0U),
                      std::vector<std::size_t>(ranks_, 1), std::vector(ranks_, 0U)};
        tree.depth[root] = 0;
        tree.children[root] = ranks_ - 1;
        for (std::uint32_t v = 0; v < ranks_; ++v) {
          if (v == root) {
            continue;
          }
          if (ways(root, v).empty()) {
            return false;
          }
          tree.route[v] = ways(root, v).front();
          add(tree.route[v], 1);
        }
        trees_.push_back(std::move(tree));
      }
    }
    return true;
  }

  void add(std::uint32_t route, double trees) {
    for (const std::uint32_t link : links_of(route)) {
      loads_[link].trees += trees;
      reprice(link);
    }
  }

  double price(std::uint32_t route) const {
    double sum = 0;
    for (const std::uint32_t link : links_of(route)) {
      sum += prices_[link];
    }
    return sum;
  }

  /// None of a route that costs more, most of which a few links tell.
  std::optional<double> price_up_to(double most, std::uint32_t route) const {
    double sum = 0;
    for (const std::uint32_t link : links_of(route)) {
      sum += prices_[link];
      if (sum > most) {
        return std::nullopt;
      }
    }
    return sum;
  }

  std::span<const std::uint32_t> links_of(std::uint32_t route) const {
    return std::span(links_).subspan(links_begin_[route],
                                     links_begin_[route + 1] - links_begin_[route]);
  }

  /// Levels below each rank that are behind v, v itself included; none of the others.
  std::size_t find_behind(const Branches& tree, std::uint32_t v) {
    std::size_t height = 0;
    is_behind_.assign(ranks_, 0);
    if (tree.children[v] == 0) {
      is_behind_[v] = 1;
      return 0;
    }
    for (std::uint32_t other = 0; other < ranks_; ++other) {
      std::uint32_t at = other;
      while (tree.depth[at] > tree.depth[v]) {
        at = tree.parent[at];
      }
      is_behind_[other] = at == v ? 1 : 0;
      height = at == v ? std::max(height, tree.depth[other] - tree.depth[v]) : height;
    }
    return height;
  }

  void reattach(Branches& tree, std::uint32_t v) {
    const std::size_t height = find_behind(tree, v);
    add(tree.route[v], -1);
    double least = price(tree.route[v]);
    std::uint32_t parent = tree.parent[v];
    std::uint32_t route = tree.route[v];
    for (std::uint32_t u = 0; u < ranks_; ++u) {
      if (is_behind_[u] != 0 || tree.depth[u] + 1 + height > options_.most_depth) {
        continue;
      }
      for (const std::uint32_t way : ways(u, v)) {
        const std::optional<double> cost = price_up_to(least / kCheaperArc, way);
        if (cost && (*cost < least * kCheaperArc || tree.depth[u] < tree.depth[parent])) {
          least = std::min(least, *cost);
          parent = u;
          route = way;
        }
      }
    }
    add(route, 1);
    const std::size_t before = tree.depth[v];
    for (std::uint32_t other = 0; other < ranks_; ++other) {
      if (is_behind_[other] != 0) {
        tree.depth[other] = tree.depth[other] - before + tree.depth[parent] + 1;
      }
    }
    --tree.children[tree.parent[v]];
    ++tree.children[parent];
    tree.parent[v] = parent;
    tree.route[v] = route;
  }

  Forest forest() {
    Forest forest;
    for (const Branches& branches : trees_) {
      Tree tree{Rank(branches.root), 1, {}};
      std::vector<std::uint32_t> order;
      for (std::uint32_t v = 0; v < ranks_; ++v) {
        if (v != branches.root) {
          order.push_back(v);
        }
      }
      std::ranges::stable_sort(order, {}, [&](std::uint32_t v) { return branches.depth[v]; });
      for (const std::uint32_t v : order) {
        tree.arcs.push_back({Rank(branches.parent[v]), Rank(v), branches.route[v]});
      }
      forest.trees.push_back(std::move(tree));
    }
    forest.routes = routes_;
    return forest;
  }

  const topology::Topology& topology_;
  bool is_reversed_;
  const ShallowOptions& options_;
  std::uint32_t ranks_;
  std::vector<topology::Route> routes_;
  RankWays finder_;
  std::vector<std::vector<std::uint32_t>> ways_;  // by parent and child, indices into routes_
  std::vector<Load> loads_;                       // by link
  std::vector<double> prices_;                    // by link, of one more tree
  std::vector<std::uint32_t> links_;              // of routes, one after the other
  std::vector<std::size_t> links_begin_{0};       // by route, where they are there
  std::vector<Branches> trees_;
  std::vector<char> is_behind_;  // by rank
};

}  // namespace

std::optional<Forest> shallow_trees(const topology::Topology& topology, bool reversed,
                                    const ShallowOptions& options) {
  return Reattaching(topology, reversed, options).run();
}

}  // namespace rackrail::planner
