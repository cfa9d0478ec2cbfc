#include "planner/packing/gathering_trees.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "planner/packing/cables.hpp"

namespace rackrail::planner {

namespace {

constexpr int kMostMoves = 50;  // rounds of them
constexpr std::uint32_t kDeeperThanFarthest = 4;
constexpr double kWorthMoreTrees = 0.999;  // times what a link carries of the data

/// From a parent to its child, whichever way the data goes.
struct LinkedArc {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  double rate = 0;  ///< bytes per second
};

class GatheringTrees {
 public:
  GatheringTrees(const topology::Topology& topology, bool reversed)
      : ranks_(static_cast<std::uint32_t>(topology.rank_count())),
        into_(ranks_),
        out_of_(ranks_),
        load_(topology.link_count()) {
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const topology::Link& link = topology.link(LinkId(l));
      if (link.kind == topology::LinkKind::kShared) {
        arcs_.emplace_back();  // no way
        continue;
      }
      const std::uint32_t src = topology.rank_of(link.from)->value();
      const std::uint32_t dst = topology.rank_of(link.to)->value();
      const auto rate = static_cast<double>(link.bandwidth.bytes_per_second());
      arcs_.push_back(reversed ? LinkedArc{dst, src, rate} : LinkedArc{src, dst, rate});
      into_[arcs_.back().to].push_back(static_cast<std::uint32_t>(l));
      out_of_[arcs_.back().from].push_back(static_cast<std::uint32_t>(l));
    }
  }

  bool reaches_all() const {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (std::ranges::count(distances(r), kFar) > 0) {
        return false;
      }
    }
    return true;
  }

  /// The fewest that divide what enters a rank nearly as well as more do.
  std::int64_t good_number(std::int64_t most) const {
    std::int64_t best = 1;
    for (std::int64_t count = 2; count <= most; ++count) {
      if (busiest(count) < kWorthMoreTrees * busiest(best)) {
        best = count;
      }
    }
    return best;
  }

  Forest make(std::int64_t trees_per_rank) {
    for (std::uint32_t root = 0; root < ranks_; ++root) {
      const std::vector<std::uint32_t> distance = distances(root);
      for (std::int64_t i = 0; i < trees_per_rank; ++i) {
        trees_.push_back(shortest_ways(root, distance));
      }
    }
    for (int round = 0; round < kMostMoves && move_all() > 0; ++round) {
    }
    Forest forest;
    for (std::size_t l = 0; l < arcs_.size(); ++l) {
      forest.routes.push_back({LinkId(l)});
    }
    forest.trees_per_rank = trees_per_rank;
    for (const Grown& tree : trees_) {
      forest.trees.push_back(tree_of(tree));
    }
    return forest;
  }

 private:
  static constexpr std::uint32_t kFar = RankCables::kFar;

  struct Grown {
    std::uint32_t root = 0;
    std::uint32_t most_depth = 0;
    std::vector<std::uint32_t> in;  ///< the arc into each rank but the root
  };

  std::vector<std::uint32_t> distances(std::uint32_t root) const {
    std::vector<std::uint32_t> distance(ranks_, kFar);
    std::vector<std::uint32_t> reached = {root};
    distance[root] = 0;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (const std::uint32_t arc : out_of_[reached[i]]) {
        const std::uint32_t next = arcs_[arc].to;
        if (distance[next] == kFar) {
          distance[next] = distance[reached[i]] + 1;
          reached.push_back(next);
        }
      }
    }
    return distance;
  }

  double fullness(std::uint32_t arc, std::uint32_t more) const {
    return static_cast<double>(load_[arc] + more) / arcs_[arc].rate;
  }

  /// Seconds for a byte of every rank, at the rank at which they are most.
  double busiest(std::int64_t trees_per_rank) const {
    const auto trees = static_cast<double>(trees_per_rank * (ranks_ - 1));
    double most = 0;
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      std::vector<double> rates;
      for (const std::uint32_t arc : into_[v]) {
        rates.push_back(arcs_[arc].rate);
      }
      most = std::max(most, least_fullness(rates, trees));
    }
    return most / static_cast<double>(trees_per_rank);
  }

  Grown shortest_ways(std::uint32_t root, const std::vector<std::uint32_t>& distance) {
    Grown tree{root, *std::ranges::max_element(distance) + kDeeperThanFarthest,
               std::vector<std::uint32_t>(ranks_)};
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      double least = std::numeric_limits<double>::infinity();
      for (const std::uint32_t arc : into_[v]) {
        if (distance[arcs_[arc].from] + 1 == distance[v] && fullness(arc, 1) < least) {
          least = fullness(arc, 1);
          tree.in[v] = arc;
        }
      }
      if (v != root) {
        ++load_[tree.in[v]];
      }
    }
    return tree;
  }

  std::size_t move_all() {
    std::size_t moves = 0;
    for (Grown& tree : trees_) {
      find_depths(tree);
      for (std::uint32_t v = 0; v < ranks_; ++v) {
        moves += v != tree.root && (move(tree, v) || turn_round(tree, v)) ? 1 : 0;
      }
    }
    return moves;
  }

  /// To the parent whose link is emptiest, if that is better.
  bool move(Grown& tree, std::uint32_t v) {
    double least = fullness(tree.in[v], 0) * (1 - kSameFullness);
    std::uint32_t best = tree.in[v];
    for (const std::uint32_t arc : into_[v]) {
      if (arc != tree.in[v] && fullness(arc, 1) < least && may_hang(tree, v, arcs_[arc].from)) {
        least = fullness(arc, 1);
        best = arc;
      }
    }
    if (best == tree.in[v]) {
      return false;
    }
    hang(tree, v, best);
    find_depths(tree);
    return true;
  }

  /// Where the parent that a rank should have is below it: gets that one in by another way first.
  bool turn_round(Grown& tree, std::uint32_t v) {
    const std::uint32_t before = tree.in[v];
    const double most = fullness(before, 0) * (1 - kSameFullness);
    for (const std::uint32_t arc : into_[v]) {
      const std::uint32_t parent = arcs_[arc].from;
      if (fullness(arc, 1) >= most || !is_below(tree, parent, v)) {
        continue;
      }
      for (const std::uint32_t entry : into_[parent]) {
        if (fullness(entry, 1) >= most || is_below(tree, arcs_[entry].from, v)) {
          continue;
        }
        const std::uint32_t before_of_parent = tree.in[parent];
        hang(tree, parent, entry);
        hang(tree, v, arc);
        find_depths(tree);
        if (*std::ranges::max_element(depth_) <= tree.most_depth) {
          return true;
        }
        hang(tree, v, before);
        hang(tree, parent, before_of_parent);
        find_depths(tree);
      }
    }
    return false;
  }

  void hang(Grown& tree, std::uint32_t v, std::uint32_t arc) {
    --load_[tree.in[v]];
    ++load_[arc];
    tree.in[v] = arc;
  }

  /// Or v itself.
  bool is_below(const Grown& tree, std::uint32_t rank, std::uint32_t v) const {
    std::uint32_t at = rank;
    while (at != v && at != tree.root) {
      at = arcs_[tree.in[at]].from;
    }
    return at == v;
  }

  /// Whether the rank is not below v, and v with all below it not too deep there.
  bool may_hang(const Grown& tree, std::uint32_t v, std::uint32_t from) const {
    return !is_below(tree, from, v) && depth_[from] + 1 + height_[v] <= tree.most_depth;
  }

  void find_depths(const Grown& tree) {
    depth_.assign(ranks_, kFar);
    height_.assign(ranks_, 0);
    order_.clear();
    depth_[tree.root] = 0;
    for (std::uint32_t v = 0; v < ranks_; ++v) {
      std::uint32_t at = v;
      for (; depth_[at] == kFar; at = arcs_[tree.in[at]].from) {
        way_.push_back(at);
      }
      for (; !way_.empty(); way_.pop_back()) {
        depth_[way_.back()] = depth_[at] + 1;
        at = way_.back();
        order_.push_back(at);
      }
    }
    for (auto v = order_.rbegin(); v != order_.rend(); ++v) {
      std::uint32_t& above = height_[arcs_[tree.in[*v]].from];
      above = std::max(above, height_[*v] + 1);
    }
  }

  Tree tree_of(const Grown& grown) {
    find_depths(grown);
    std::ranges::stable_sort(order_, {}, [this](std::uint32_t v) { return depth_[v]; });
    Tree tree{Rank(grown.root), 1, {}};
    for (const std::uint32_t v : order_) {
      tree.arcs.push_back({Rank(arcs_[grown.in[v]].from), Rank(v), grown.in[v]});
    }
    return tree;
  }

  std::uint32_t ranks_;
  std::vector<LinkedArc> arcs_;                     // by link
  std::vector<std::vector<std::uint32_t>> into_;    // by rank
  std::vector<std::vector<std::uint32_t>> out_of_;  // by rank
  std::vector<std::uint32_t> load_;                 // trees over each arc
  std::vector<Grown> trees_;
  // Of the tree that is looked at: by rank, and ranks after those above them.
  std::vector<std::uint32_t> depth_;
  std::vector<std::uint32_t> height_;  // of what is below
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> way_;
};

}  // namespace

std::optional<Forest> gathering_trees(const topology::Topology& topology,
                                      std::int64_t most_trees_per_rank, bool reversed) {
  if (!are_ranks_joined_directly(topology)) {
    return std::nullopt;
  }
  GatheringTrees trees(topology, reversed);
  if (!trees.reaches_all()) {
    return std::nullopt;
  }
  return trees.make(trees.good_number(most_trees_per_rank));
}

}  // namespace rackrail::planner
