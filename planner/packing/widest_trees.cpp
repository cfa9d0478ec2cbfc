#include "planner/packing/widest_trees.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace rackrail::planner {

namespace {

constexpr double kWorthATree = 1e-3;  // of the width of the first

/// The trees of one root.
class WidestTrees {
 public:
  WidestTrees(const topology::Topology& topology, Rank root, bool is_reversed)
      : topology_(topology), root_(root), is_reversed_(is_reversed), uses_(topology.link_count()) {
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const topology::Link& link = topology.link(LinkId(l));
      left_.push_back(link.kind == topology::LinkKind::kShared
                          ? 0
                          : static_cast<double>(link.bandwidth.bytes_per_second()));
    }
  }

  struct Arc {
    Rank from;
    Rank to;
    topology::Route route;
  };

  /// The next one, with its width in bytes per second; none when links are used up.
  std::optional<std::pair<std::vector<Arc>, double>> next() {
    std::ranges::fill(uses_, 0);
    std::vector<bool> is_reached(topology_.rank_count());
    is_reached[root_.index()] = true;
    std::vector<Arc> arcs;
    while (arcs.size() + 1 < topology_.rank_count()) {
      auto arc = widest_way(is_reached);
      if (!arc) {
        return std::nullopt;
      }
      for (const LinkId link : arc->route) {
        ++uses_[link.index()];
      }
      is_reached[arc->to.index()] = true;
      arcs.push_back(std::move(*arc));
    }
    double width = std::numeric_limits<double>::infinity();
    for (std::size_t l = 0; l < left_.size(); ++l) {
      width = uses_[l] > 0 ? std::min(width, left_[l] / uses_[l]) : width;
    }
    for (std::size_t l = 0; l < left_.size(); ++l) {
      left_[l] = std::max(0.0, left_[l] - width * uses_[l]);
    }
    return std::pair(std::move(arcs), width);
  }

 private:
  struct Reached {
    double width = 0;
    std::uint32_t hops = 0;  ///< links
    NodeId node;
    bool operator<(const Reached& other) const {  // the widest first, for std::priority_queue
      return std::tie(width, other.hops, other.node) < std::tie(other.width, hops, node);
    }
  };

  NodeId tail(LinkId link) const {
    return is_reversed_ ? topology_.link(link).to : topology_.link(link).from;
  }
  NodeId head(LinkId link) const {
    return is_reversed_ ? topology_.link(link).from : topology_.link(link).to;
  }

  /// From a rank of the tree to one that it does not have, past switches alone.
  std::optional<Arc> widest_way(const std::vector<bool>& is_reached) const {
    std::vector<double> width(topology_.node_count());
    std::vector<std::optional<LinkId>> into(topology_.node_count());
    std::priority_queue<Reached> queue;
    for (std::size_t r = 0; r < is_reached.size(); ++r) {
      if (is_reached[r]) {
        const NodeId node = topology_.node_of(Rank(r));
        width[node.index()] = std::numeric_limits<double>::infinity();
        queue.push({width[node.index()], 0, node});
      }
    }
    while (!queue.empty()) {
      const Reached here = queue.top();
      queue.pop();
      if (here.width < width[here.node.index()]) {
        continue;
      }
      const auto rank = topology_.rank_of(here.node);
      if (rank && !is_reached[rank->index()]) {
        return arc_to(*rank, into);
      }
      for (const LinkId link :
           is_reversed_ ? topology_.links_into(here.node) : topology_.links_out_of(here.node)) {
        const double next = std::min(here.width, left_[link.index()] / (uses_[link.index()] + 1));
        const NodeId there = head(link);
        if (next > width[there.index()]) {
          width[there.index()] = next;
          into[there.index()] = link;
          queue.push({next, here.hops + 1, there});
        }
      }
    }
    return std::nullopt;
  }

  Arc arc_to(Rank rank, const std::vector<std::optional<LinkId>>& into) const {
    Arc arc{rank, rank, {}};
    NodeId at = topology_.node_of(rank);
    while (const auto link = into[at.index()]) {
      arc.route.push_back(*link);
      at = tail(*link);
    }
    arc.from = *topology_.rank_of(at);
    if (!is_reversed_) {
      std::ranges::reverse(arc.route);
    }
    return arc;
  }

  const topology::Topology& topology_;
  Rank root_;
  bool is_reversed_;
  std::vector<double> left_;  ///< by link, bytes per second
  std::vector<int> uses_;     ///< by link, of the tree that is being made
};

}  // namespace

Forest widest_trees(const topology::Topology& topology, std::size_t most_per_rank, bool reversed) {
  Forest forest;
  std::map<topology::Route, std::uint32_t> numbers;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    WidestTrees trees(topology, Rank(r), reversed);
    double first = 0;
    for (std::size_t t = 0; t < most_per_rank; ++t) {
      const auto found = trees.next();
      if (!found || found->second < kWorthATree * first) {
        break;
      }
      first = std::max(first, found->second);
      Tree tree{Rank(r), 1, {}};
      for (const auto& arc : found->first) {
        const auto [known, is_new] =
            numbers.emplace(arc.route, static_cast<std::uint32_t>(forest.routes.size()));
        if (is_new) {
          forest.routes.push_back(arc.route);
        }
        tree.arcs.push_back({arc.from, arc.to, known->second});
      }
      forest.trees.push_back(std::move(tree));
    }
  }
  return forest;
}

}  // namespace rackrail::planner
