#include "planner/packing/switch_trees.hpp"

#include <algorithm>
#include <utility>

#include "base/work.hpp"

namespace rackrail::planner {

/// One tree to be found, in a graph that leads away from the root.
struct SwitchTrees::Request {
  plan::TransferOp op;
  NodeId root;
  double share;
  const topology::Topology& topology;

  bool outward() const { return op == plan::TransferOp::kCopy; }
  std::span<const LinkId> links(NodeId node) const {
    return outward() ? topology.links_out_of(node) : topology.links_into(node);
  }
  NodeId near(LinkId id) const {
    const topology::Link& link = topology.link(id);
    return outward() ? link.from : link.to;
  }
  NodeId far(LinkId id) const {
    const topology::Link& link = topology.link(id);
    return outward() ? link.to : link.from;
  }
};

struct SwitchTrees::Tree {
  std::vector<LinkId> links;  ///< each once
  double fullest = 0;
};

SwitchTrees::SwitchTrees(const topology::Topology& topology)
    : topology_(topology),
      load_(topology.link_count()),
      walked_(topology.node_count()),
      parted_(topology.node_count()) {}

bool SwitchTrees::is_able(NodeId id, plan::TransferOp op) const {
  const topology::Node& node = topology_.node(id);
  return !topology_.rank_of(id).has_value() &&
         (op == plan::TransferOp::kCopy ? node.multicasts : node.reduces);
}

bool SwitchTrees::any(plan::TransferOp op) const {
  for (std::size_t v = 0; v < topology_.node_count(); ++v) {
    if (is_able(NodeId(v), op)) {
      return true;
    }
  }
  return false;
}

double SwitchTrees::cost(LinkId link, double share) const {
  return (load_[link.index()] + share) /
         static_cast<double>(topology_.link(link).bandwidth.bytes_per_second());
}

void SwitchTrees::add_load(std::span<const LinkId> route, double share) {
  for (const LinkId link : route) {
    load_[link.index()] += share;
  }
}

// Shortest ways from the sources in ways_ until all targets are reached, by breadth first; ranks
// pass nothing on. Of a vertex's neighbours at equal distance that with the emptiest way leads to
// it, so that the vertices of a distance go on in that order.
void SwitchTrees::search(const Request& request, std::span<const Rank> targets) {
  std::vector<bool> is_target(ways_.size());
  for (const Rank target : targets) {
    is_target[topology_.node_of(target).index()] = true;
  }
  std::vector<NodeId> level;
  for (std::size_t v = 0; v < ways_.size(); ++v) {
    if (ways_[v].is_source) level.emplace_back(v);
  }
  reached_.clear();
  std::vector<NodeId> next_level;
  std::size_t missing = targets.size();
  for (std::uint32_t hops = 1; !level.empty() && missing > 0; ++hops) {
    std::ranges::sort(level, {}, [&](NodeId v) { return std::pair(ways_[v.index()].fullest, v); });
    next_level.clear();
    for (const NodeId node : level) {
      reached_.push_back(node);
      missing -= is_target[node.index()] ? 1 : 0;
      if (missing == 0) break;
      if (node != request.root && topology_.rank_of(node).has_value()) continue;
      const double so_far = ways_[node.index()].fullest;
      Work::step(request.links(node).size());
      for (const LinkId link : request.links(node)) {
        const NodeId far = request.far(link);
        Way& next = ways_[far.index()];
        if (next.is_closed || next.hops < hops ||
            topology_.link(link).kind == topology::LinkKind::kShared) {
          continue;
        }
        const double fullest = std::max(so_far, cost(link, request.share));
        if (next.hops == kFar) {
          next_level.push_back(far);
        } else if (fullest >= next.fullest) {
          continue;
        }
        next.hops = hops;
        next.fullest = fullest;
        next.last = link;
      }
    }
    level.swap(next_level);
  }
}

std::vector<LinkId> SwitchTrees::way_to(const Request& request, NodeId node) const {
  std::vector<LinkId> way;
  while (!ways_[node.index()].is_source) {
    way.push_back(ways_[node.index()].last);
    node = request.near(way.back());
  }
  std::reverse(way.begin(), way.end());
  return way;
}

// Shortest ways to the leaves from the switches on the way `stem` from the root, if there are such.
bool SwitchTrees::reaches_all(const Request& request, const std::vector<LinkId>& stem,
                              std::span<const Rank> leaves) {
  ways_.assign(topology_.node_count(), {});
  const auto close = [&](NodeId node, bool is_source) {
    Way& way = ways_[node.index()];
    way = {.hops = 0, .last = {}, .is_source = is_source, .is_closed = true};
  };
  close(request.root, false);
  for (const LinkId link : stem) {
    close(request.far(link), is_able(request.far(link), request.op));
  }
  search(request, leaves);
  return std::ranges::none_of(
      leaves, [&](Rank leaf) { return ways_[topology_.node_of(leaf).index()].hops == kFar; });
}

// Breadth first; ranks pass nothing on.
const std::vector<std::uint32_t>& SwitchTrees::hops_from(const Request& request, NodeId source) {
  std::vector<std::uint32_t>& hops = hops_[{source, request.op}];
  if (!hops.empty()) {
    return hops;
  }
  hops.assign(topology_.node_count(), kFar);
  hops[source.index()] = 0;
  std::vector<NodeId> reached = {source};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const NodeId node = reached[i];
    if (topology_.rank_of(node).has_value()) {
      continue;
    }
    Work::step(request.links(node).size());
    for (const LinkId link : request.links(node)) {
      const NodeId far = request.far(link);
      if (hops[far.index()] == kFar && topology_.link(link).kind != topology::LinkKind::kShared) {
        hops[far.index()] = hops[node.index()] + 1;
        reached.push_back(far);
      }
    }
  }
  return hops;
}

// Where the last switch of a stem is nearest to no leaf, the tree is that of a shorter stem.
bool SwitchTrees::may_be_new(const Request& request, const std::vector<LinkId>& stem,
                             std::span<const Rank> leaves) {
  std::vector<const std::vector<std::uint32_t>*> sources;
  for (const LinkId link : stem) {
    if (is_able(request.far(link), request.op)) {
      sources.push_back(&hops_from(request, request.far(link)));
    }
  }
  const std::vector<std::uint32_t>& last = *sources.back();
  sources.pop_back();
  bool is_nearest = false;
  for (const Rank leaf : leaves) {
    const std::size_t node = topology_.node_of(leaf).index();
    std::uint32_t nearest = kFar;
    for (const std::vector<std::uint32_t>* source : sources) {
      nearest = std::min(nearest, (*source)[node]);
    }
    if (last[node] == kFar && nearest == kFar) {
      return false;  // nobody reaches it
    }
    is_nearest = is_nearest || last[node] <= nearest;
  }
  return is_nearest;
}

std::size_t SwitchTrees::links_to(const Request& request, const std::vector<LinkId>& stem,
                                  NodeId source) {
  const auto after =
      std::ranges::find(stem, source, [&](LinkId link) { return request.near(link); });
  return static_cast<std::size_t>(after - stem.begin());
}

// The tree that the switches on the way `stem` from the root make, if it reaches all leaves.
std::optional<SwitchTrees::Tree> SwitchTrees::tree_over(const Request& request,
                                                        const std::vector<LinkId>& stem,
                                                        std::span<const Rank> leaves) {
  if (!reaches_all(request, stem, leaves)) {
    return std::nullopt;
  }
  Tree tree;
  ++walk_;
  std::size_t of_stem = 0;
  for (const Rank leaf : leaves) {
    NodeId node = topology_.node_of(leaf);
    while (walked_[node.index()] != walk_) {
      walked_[node.index()] = walk_;
      const Way& way = ways_[node.index()];
      if (way.is_source) {
        of_stem = std::max(of_stem, links_to(request, stem, node));
        break;
      }
      tree.links.push_back(way.last);
      node = request.near(way.last);
    }
  }
  tree.links.insert(tree.links.end(), stem.begin(),
                    stem.begin() + static_cast<std::ptrdiff_t>(of_stem));
  for (const LinkId link : tree.links) {
    tree.fullest = std::max(tree.fullest, cost(link, request.share));
  }
  return tree;
}

bool SwitchTrees::parts_only_where_able(const Request& request, const Tree& tree) {
  return std::ranges::all_of(tree.links, [&](LinkId link) {
    const NodeId near = request.near(link);
    const bool is_first = parted_[near.index()] != walk_;
    parted_[near.index()] = walk_;
    return is_first || is_able(near, request.op);
  });
}

std::vector<topology::Route> SwitchTrees::routes_over(const Request& request,
                                                      const std::vector<LinkId>& stem,
                                                      std::span<const Rank> leaves) {
  reaches_all(request, stem, leaves);
  std::vector<topology::Route> routes;
  for (const Rank leaf : leaves) {
    const std::vector<LinkId> way = way_to(request, topology_.node_of(leaf));
    const std::size_t of_stem = links_to(request, stem, request.near(way.front()));
    topology::Route& route =
        routes.emplace_back(stem.begin(), stem.begin() + static_cast<std::ptrdiff_t>(of_stem));
    route.insert(route.end(), way.begin(), way.end());
    if (request.op == plan::TransferOp::kReduce) {
      std::ranges::reverse(route);
    }
  }
  return routes;
}

std::optional<std::vector<topology::Route>> SwitchTrees::take(plan::TransferOp op, Rank root,
                                                              std::span<const Rank> leaves,
                                                              double share) {
  const Request request{op, topology_.node_of(root), share, topology_};
  ways_.assign(topology_.node_count(), {});
  ways_[request.root.index()].is_source = true;
  ways_[request.root.index()].hops = 0;
  search(request, leaves);
  std::vector<std::vector<LinkId>> stems;
  for (const NodeId node : reached_) {
    if (is_able(node, op)) {
      stems.push_back(way_to(request, node));
    }
  }
  std::optional<Tree> best;
  const std::vector<LinkId>* best_stem = nullptr;
  for (const std::vector<LinkId>& stem : stems) {
    if (!may_be_new(request, stem, leaves)) {
      continue;
    }
    auto tree = tree_over(request, stem, leaves);
    if (tree && parts_only_where_able(request, *tree) &&
        (!best || std::pair(tree->fullest, tree->links.size()) <
                      std::pair(best->fullest, best->links.size()))) {
      best = std::move(tree);
      best_stem = &stem;
    }
  }
  if (!best) {
    return std::nullopt;
  }
  std::vector<topology::Route> routes = routes_over(request, *best_stem, leaves);
  add_load(best->links, share);
  return routes;
}

}  // namespace rackrail::planner
