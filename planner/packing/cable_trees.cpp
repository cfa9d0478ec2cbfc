#include "planner/packing/cable_trees.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace rackrail::planner {

namespace {

// Roots are ranks that no other is further from than so many times what the middle has it.
constexpr double kMostFar = 1.25;
constexpr std::size_t kMostExchanges = 200;  // rounds of them
// Room for so many times the trees that there are is soon found by exchanges.
constexpr double kSpare = 1.0025;
constexpr std::uint32_t kDeeper = 2;  // than the farthest rank from any root, at most

/// Of so many trees, in trees over bytes per second: what their number alone allows.
double enough_fullness(const RankCables& cables, std::size_t trees) {
  std::vector<double> rates;
  for (const Cable& cable : cables.cables) {
    rates.push_back(cable.rate);
  }
  return least_fullness(rates, kSpare * static_cast<double>(trees * (cables.around.size() - 1)));
}

class CableExchange {
 public:
  CableExchange(const RankCables& cables, std::size_t trees)
      : cables_(cables), ranks_(cables.around.size()), load_(cables.cables.size()) {
    enough_ = enough_fullness(cables, trees);
    const std::vector<std::uint32_t> roots = middle();
    for (std::size_t t = 0; t < trees; ++t) {
      trees_.push_back(shortest_ways(roots[t * roots.size() / trees]));
    }
  }

  CableTrees run() {
    for (std::size_t round = 0; round < kMostExchanges && fullest() > enough_ * (1 + kSameFullness);
         ++round) {
      if (exchange() == 0) {
        break;
      }
    }
    const double algbw = static_cast<double>(trees_.size()) / fullest();
    return {std::move(trees_), algbw};
  }

  double fullest() const {
    double most = 0;
    for (std::size_t c = 0; c < load_.size(); ++c) {
      most = std::max(most, fullness(c, 0));
    }
    return most;
  }

 private:
  double fullness(std::size_t cable, std::uint32_t more) const {
    return static_cast<double>(load_[cable] + more) / cables_.cables[cable].rate;
  }

  std::vector<std::uint32_t> middle() {
    std::vector<std::uint32_t> farthest(ranks_);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      const std::vector<std::uint32_t> distance = cables_.distances(r);
      farthest[r] = *std::ranges::max_element(distance);
    }
    const double most = kMostFar * *std::ranges::min_element(farthest);
    std::vector<std::uint32_t> roots;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (farthest[r] <= most) {
        roots.push_back(r);
        most_depth_ = std::max(most_depth_, farthest[r] + kDeeper);
      }
    }
    return roots;
  }

  CableTree shortest_ways(std::uint32_t root) {
    const std::vector<std::uint32_t> distance = cables_.distances(root);
    CableTree tree{root, std::vector<std::uint32_t>(ranks_, root),
                   std::vector<std::uint32_t>(ranks_), distance};
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      double least = std::numeric_limits<double>::infinity();
      for (const std::uint32_t cable : cables_.around[v]) {
        const std::uint32_t next = cables_.cables[cable].other_end(v);
        if (distance[next] + 1 == distance[v] && fullness(cable, 1) < least) {
          least = fullness(cable, 1);
          tree.parent[v] = next;
          tree.cable[v] = cable;
        }
      }
      if (v != root) {
        ++load_[tree.cable[v]];
      }
    }
    return tree;
  }

  std::size_t exchange() {
    std::size_t exchanges = 0;
    for (CableTree& tree : trees_) {
      for (std::uint32_t c = 0; c < load_.size(); ++c) {
        exchanges += take_in(tree, c) ? 1 : 0;
      }
    }
    return exchanges;
  }

  static bool has(const CableTree& tree, std::uint32_t rank, std::uint32_t cable) {
    return rank != tree.root && tree.cable[rank] == cable;
  }

  /// The cable instead of the fullest on the way between its ends, if that is better.
  bool take_in(CableTree& tree, std::uint32_t cable) {
    const auto [a, b] = std::pair(cables_.cables[cable].a, cables_.cables[cable].b);
    if (has(tree, a, cable) || has(tree, b, cable)) {
      return false;
    }
    double most = fullness(cable, 1) * (1 + kSameFullness);
    std::uint32_t out = 0;        // the rank below the cable that is given up
    std::uint32_t below = kNone;  // the end of the new one that is below it, too
    std::uint32_t end[2] = {a, b};
    while (end[0] != end[1]) {
      const int side = tree.depth[end[0]] >= tree.depth[end[1]] ? 0 : 1;
      const std::uint32_t at = end[side];
      if (const double here = fullness(tree.cable[at], 0); here > most) {
        most = here;
        out = at;
        below = side == 0 ? a : b;
      }
      end[side] = tree.parent[at];
    }
    if (below == kNone) {
      return false;
    }
    const std::uint32_t given_up = tree.cable[out];
    hang(tree, below, out, cables_.cables[cable].other_end(below), cable);
    if (!find_depths(tree)) {
      hang(tree, out, below, parent_before_, given_up);
      find_depths(tree);
      return false;
    }
    --load_[given_up];
    ++load_[cable];
    return true;
  }

  /// What is below `top` hangs on `parent` by `child`, which is one of it, from now on.
  void hang(CableTree& tree, std::uint32_t child, std::uint32_t top, std::uint32_t parent,
            std::uint32_t cable) {
    std::uint32_t at = child;
    for (bool is_last = false; !is_last;) {
      is_last = at == top;
      const std::uint32_t next = tree.parent[at];
      const std::uint32_t cable_to_next = tree.cable[at];
      tree.parent[at] = parent;
      tree.cable[at] = cable;
      parent = at;
      cable = cable_to_next;
      at = next;
    }
    parent_before_ = at;
  }

  /// False where some rank is too deep.
  bool find_depths(CableTree& tree) {
    std::ranges::fill(tree.depth, RankCables::kFar);
    tree.depth[tree.root] = 0;
    bool is_shallow = true;
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      std::uint32_t at = v;
      for (; tree.depth[at] == RankCables::kFar; at = tree.parent[at]) {
        way_.push_back(at);
      }
      for (; !way_.empty(); way_.pop_back()) {
        tree.depth[way_.back()] = tree.depth[at] + 1;
        at = way_.back();
      }
      is_shallow = is_shallow && tree.depth[v] <= most_depth_;
    }
    return is_shallow;
  }

  static constexpr std::uint32_t kNone = 0xffffffff;

  const RankCables& cables_;
  std::size_t ranks_;
  std::vector<std::uint32_t> load_;  // trees over each cable
  std::vector<CableTree> trees_;
  std::uint32_t most_depth_ = 0;
  double enough_ = 0;  // fullness with which nothing better is looked for
  std::vector<std::uint32_t> way_;
  std::uint32_t parent_before_ = 0;  // of the rank that hung there last
};

}  // namespace

CableTrees cable_trees(const RankCables& cables, std::size_t fewest, std::size_t most) {
  std::size_t best = most;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t trees = most; trees >= fewest; --trees) {
    const double of_one = enough_fullness(cables, trees) / static_cast<double>(trees);
    if (of_one < least * (1 - kSameFullness)) {
      least = of_one;
      best = trees;
    }
  }
  return CableExchange(cables, best).run();
}

}  // namespace rackrail::planner
