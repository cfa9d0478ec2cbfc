#include "planner/packing/switch_operations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rackrail::planner {

namespace {

class TreeReader {
 public:
  TreeReader(const topology::Topology& topology, const PricedPaths& paths, const SteinerTree& tree)
      : topology_(topology), paths_(paths), arcs_of_(paths.size()) {
    for (const std::uint32_t arc : tree.in) {
      if (arc != SteinerTree::kNoArc) {
        arcs_of_[paths.arcs()[arc].from].push_back(arc);
      }
    }
  }

  std::vector<SwitchOperation> read(Rank root) {
    std::vector<SwitchOperation> operations;
    ranks_ = {root};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank rank = ranks_[i];
      for (const std::uint32_t arc : arcs_of_[rank.index()]) {
        operations.push_back(operation_of(rank, arc));
      }
    }
    if (paths_.is_reversed()) {
      std::reverse(operations.begin(), operations.end());
    }
    return operations;
  }

 private:
  using Leaf = std::pair<Rank, topology::Route>;

  /// All that goes on from the arc without another rank between.
  SwitchOperation operation_of(Rank root, std::uint32_t arc) {
    leaves_.clear();
    SwitchOperation operation{root, {}, {}, {}};
    descend(arc, {}, operation.links);
    // Equal trees are listed alike.
    std::sort(leaves_.begin(), leaves_.end());
    std::sort(operation.links.begin(), operation.links.end());
    for (auto& [leaf, route] : leaves_) {
      if (paths_.is_reversed()) {
        std::reverse(route.begin(), route.end());
      }
      operation.leaves.push_back(leaf);
      operation.routes.push_back(std::move(route));
    }
    return operation;
  }

  void descend(std::uint32_t arc, topology::Route route, topology::Route& links) {
    const topology::Route& path = paths_.routes()[paths_.route_of(arc)];
    route.insert(route.end(), path.begin(), path.end());
    links.insert(links.end(), path.begin(), path.end());
    const std::uint32_t to = paths_.arcs()[arc].to;
    if (to < topology_.rank_count()) {
      leaves_.emplace_back(Rank(to), std::move(route));
      ranks_.emplace_back(to);
      return;
    }
    for (const std::uint32_t next : arcs_of_[to]) {
      descend(next, route, links);
    }
  }

  const topology::Topology& topology_;
  const PricedPaths& paths_;
  std::vector<std::vector<std::uint32_t>> arcs_of_;  // by vertex: those away from it
  std::vector<Rank> ranks_;                          // parents first
  std::vector<Leaf> leaves_;
};

}  // namespace

std::vector<SwitchOperation> operations_of(const topology::Topology& topology,
                                           const PricedPaths& paths, const SteinerTree& tree,
                                           Rank root) {
  return TreeReader(topology, paths, tree).read(root);
}

}  // namespace rackrail::planner
