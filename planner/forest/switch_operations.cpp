#include "planner/forest/switch_operations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace rackrail::planner {

namespace {

/// An operation while leaves are added, its routes away from the root.
class OpenOperation {
 public:
  OpenOperation(const SwitchWays& ways, Rank root) : ways_(ways) { operation_.root = root; }

  /// False where the switches could not carry it out with this leaf.
  bool add(Rank leaf, const topology::Route& route) {
    if (!fits(route)) {
      return false;
    }
    for (const LinkId link : route) {
      entry_.emplace(ways_.far(link), link);
      exit_.emplace(ways_.near(link), link);
    }
    operation_.leaves.push_back(leaf);
    operation_.routes.push_back(route);
    return true;
  }

  /// With routes as bytes go.
  SwitchOperation take() {
    if (ways_.is_reversed()) {
      for (topology::Route& route : operation_.routes) {
        std::reverse(route.begin(), route.end());
      }
    }
    return std::move(operation_);
  }

 private:
  bool fits(const topology::Route& route) const {
    const NodeId root = ways_.near(route.front());
    return std::all_of(route.begin(), route.end(), [&](LinkId link) {
      const auto entry = entry_.find(ways_.far(link));
      const auto exit = exit_.find(ways_.near(link));
      const bool parts = exit != exit_.end() && exit->second != link;
      const bool may_part = ways_.is_able(ways_.near(link)) && ways_.near(link) != root;
      return (entry == entry_.end() || entry->second == link) && (!parts || may_part);
    });
  }

  const SwitchWays& ways_;
  SwitchOperation operation_;
  std::map<NodeId, LinkId> entry_;
  std::map<NodeId, LinkId> exit_;  // the first one
};

/// The same without rounds, which lead through a switch twice that passes on only.
topology::Route without_rounds(const SwitchWays& ways, const topology::Route& route) {
  topology::Route direct;
  for (const LinkId link : route) {
    direct.push_back(link);
    const NodeId here = ways.far(link);
    const auto before = std::find_if(direct.begin(), direct.end(),
                                     [&](LinkId earlier) { return ways.near(earlier) == here; });
    direct.erase(before, direct.end());
  }
  return direct;
}

class TreeReader {
 public:
  TreeReader(const topology::Topology& topology, const SwitchWays& ways, const SteinerTree& tree)
      : topology_(topology), ways_(ways), arcs_of_(ways.size()) {
    for (const std::uint32_t arc : tree.in) {
      if (arc != SteinerTree::kNoArc) {
        arcs_of_[ways.arcs()[arc].from].push_back(arc);
      }
    }
  }

  std::vector<SwitchOperation> read(Rank root) {
    std::vector<SwitchOperation> operations;
    ranks_ = {root};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank rank = ranks_[i];
      for (const std::uint32_t arc : arcs_of_[rank.index()]) {
        leaves_.clear();
        descend(arc, {});
        std::sort(leaves_.begin(), leaves_.end());  // equal trees are listed alike
        add_operations(rank, operations);
      }
    }
    if (ways_.is_reversed()) {
      std::reverse(operations.begin(), operations.end());
    }
    return operations;
  }

 private:
  using Leaf = std::pair<Rank, topology::Route>;

  /// Ranks at the ends of the arcs that go on from this one without another rank between.
  void descend(std::uint32_t arc, topology::Route route) {
    const topology::Route& way = ways_.way(arc);
    route.insert(route.end(), way.begin(), way.end());
    const std::uint32_t to = ways_.arcs()[arc].to;
    if (to < topology_.rank_count()) {
      leaves_.emplace_back(Rank(to), without_rounds(ways_, route));
      ranks_.emplace_back(to);
      return;
    }
    for (const std::uint32_t next : arcs_of_[to]) {
      descend(next, route);
    }
  }

  void add_operations(Rank root, std::vector<SwitchOperation>& operations) {
    std::vector<OpenOperation> open;
    for (const Leaf& leaf : leaves_) {
      const bool is_added = std::any_of(open.begin(), open.end(), [&](OpenOperation& operation) {
        return operation.add(leaf.first, leaf.second);
      });
      if (!is_added) {
        open.emplace_back(ways_, root).add(leaf.first, leaf.second);
      }
    }
    for (OpenOperation& operation : open) {
      operations.push_back(operation.take());
      operations.back().is_rest = &operation != &open.front();
    }
  }

  const topology::Topology& topology_;
  const SwitchWays& ways_;
  std::vector<std::vector<std::uint32_t>> arcs_of_;  // by vertex: those away from it
  std::vector<Rank> ranks_;                          // parents first
  std::vector<Leaf> leaves_;
};

}  // namespace

std::vector<SwitchOperation> operations_of(const topology::Topology& topology,
                                           const SwitchWays& ways, const SteinerTree& tree,
                                           Rank root) {
  return TreeReader(topology, ways, tree).read(root);
}

std::vector<LinkId> links_of(const SwitchOperation& operation) {
  std::set<LinkId> links;
  for (const topology::Route& route : operation.routes) {
    links.insert(route.begin(), route.end());
  }
  return {links.begin(), links.end()};
}

}  // namespace rackrail::planner
