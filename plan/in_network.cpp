#include "plan/in_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "topology/queries.hpp"

namespace rackrail::plan {

namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

std::span<const Transfer> members(const TransferGraph& graph, const TransferGroup& group) {
  return graph.transfers().subspan(group.first.index(), group.count);
}

bool is_copy(const TransferGraph& graph, const TransferGroup& group) {
  return graph.transfer(group.first).op == TransferOp::kCopy;
}

/// A link as the tree sees it: from the end nearer to the root to the other one.
struct Branch {
  NodeId near;
  NodeId far;
};
Branch branch(const topology::Link& link, bool outward) {
  return outward ? Branch{link.from, link.to} : Branch{link.to, link.from};
}

/// What hinders the links of all members from being a tree whose switches can do it.
class TreeCheck {
 public:
  TreeCheck(const topology::Topology& topology, NodeId root, bool outward)
      : topology_(topology), root_(root), outward_(outward) {}

  std::optional<std::string> add(std::span<const LinkId> route) {
    for (std::size_t i = 0; i < route.size(); ++i) {
      const LinkId id = outward_ ? route[i] : route[route.size() - 1 - i];
      if (id.index() >= topology_.link_count()) {
        return fmt::format("link {} is not in the cluster", id.value());
      }
      const auto [near, far] = branch(topology_.link(id), outward_);
      if (near != root_ && topology_.rank_of(near).has_value()) {
        return fmt::format("a route leads through '{}', which is a rank", name(near));
      }
      const auto [entry, is_new] = entry_.emplace(far, id);
      if (entry->second != id || far == root_) {
        return fmt::format("routes are no tree: there are two ways at '{}'", name(far));
      }
      if (is_new && ++branches_[near] > 1) {
        if (auto problem = cannot_branch(near)) {
          return problem;
        }
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> cannot_branch(NodeId at) const {
    const topology::Node& node = topology_.node(at);
    if (at == root_) {
      return fmt::format("'{}' has more than one link of the tree", node.name);
    }
    if (outward_ ? !node.multicasts : !node.reduces) {
      return fmt::format("'{}' would have to {}, which it cannot", node.name,
                         outward_ ? "multicast" : "reduce");
    }
    return std::nullopt;
  }
  const std::string& name(NodeId node) const { return topology_.node(node).name; }

  const topology::Topology& topology_;
  NodeId root_;
  bool outward_;
  std::unordered_map<NodeId, LinkId> entry_;  // by vertex: the link towards the root
  std::unordered_map<NodeId, int> branches_;
};

InNetwork::Tree tree_of(const TransferGraph& graph, const TransferGroup& group,
                        const topology::Topology& topology) {
  InNetwork::Tree tree;
  std::set<LinkId> seen;
  for (const Transfer& t : members(graph, group)) {
    const std::vector<LinkId>& route = graph.routes()[t.route.index()];
    tree.latency = std::max(tree.latency, topology::route_latency(topology, route));
    if (const Bandwidth rate = graph.rate(t.route);
        rate > Bandwidth() && (tree.rate == Bandwidth() || rate < tree.rate)) {
      tree.rate = rate;
    }
    std::copy_if(route.begin(), route.end(), std::back_inserter(tree.links),
                 [&](LinkId link) { return seen.insert(link).second; });
  }
  return tree;
}

}  // namespace

std::optional<std::string> problem_of(const TransferGraph& graph, const TransferGroup& group) {
  const Transfer& first = graph.transfer(group.first);
  const bool copies = is_copy(graph, group);
  if (!copies && graph.codecs()[first.codec].is_lossy()) {
    return fmt::format("switches cannot add {}", to_string(graph.codecs()[first.codec]));
  }
  std::set<Rank> leaves;
  for (std::uint32_t i = 0; i < group.count; ++i) {
    const TransferId id(group.first.value() + i);
    const Transfer& t = graph.transfer(id);
    const bool same_root = copies ? t.src == first.src : t.dst == first.dst;
    if (t.op != first.op || t.codec != first.codec || t.chunk_begin != first.chunk_begin ||
        t.chunk_count != first.chunk_count || !same_root) {
      return fmt::format(
          "transfer {} is not of the same kind, codec, range and root as transfer {}", id.value(),
          group.first.value());
    }
    if (const Rank leaf = copies ? t.dst : t.src; !leaves.insert(leaf).second) {
      return fmt::format("rank {} is in it twice", leaf.value());
    }
    if (graph.routes()[t.route.index()].empty()) {
      return fmt::format("transfer {} has no pinned route", id.value());
    }
    for (const TransferId dependency : graph.dependencies(id)) {
      if (dependency >= group.first) {
        return fmt::format("transfer {} waits for transfer {} of the same group", id.value(),
                           dependency.value());
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> problem_of(const TransferGraph& graph, const TransferGroup& group,
                                      const topology::Topology& topology) {
  const Transfer& first = graph.transfer(group.first);
  const bool copies = is_copy(graph, group);
  TreeCheck check(topology, topology.node_of(copies ? first.src : first.dst), copies);
  for (const Transfer& t : members(graph, group)) {
    if (auto problem = check.add(graph.routes()[t.route.index()])) {
      return problem;
    }
  }
  return std::nullopt;
}

InNetwork::InNetwork(const TransferGraph& graph, const topology::Topology& topology)
    : graph_(graph) {
  if (graph.groups().empty()) {
    return;
  }
  operation_of_.assign(graph.transfers().size(), kNone);
  // Groups of different chunks mostly go the same ways. kNone: no operation.
  std::map<std::pair<bool, std::vector<RouteId>>, std::uint32_t> known;
  for (const TransferGroup& group : graph.groups()) {
    if (problem_of(graph, group)) {
      continue;
    }
    std::pair<bool, std::vector<RouteId>> key{is_copy(graph, group), {}};
    for (const Transfer& t : members(graph, group)) {
      key.second.push_back(t.route);
    }
    const auto [tree, is_new] = known.emplace(std::move(key), kNone);
    if (is_new && !problem_of(graph, group, topology)) {
      tree->second = static_cast<std::uint32_t>(trees_.size());
      trees_.push_back(tree_of(graph, group, topology));
    }
    if (tree->second != kNone) {
      std::fill_n(operation_of_.begin() + static_cast<std::ptrdiff_t>(group.first.index()),
                  group.count, static_cast<std::uint32_t>(operations_.size()));
      operations_.push_back({group, tree->second});
    }
  }
}

const InNetwork::Operation* InNetwork::operation_of(TransferId id) const {
  if (operation_of_.empty() || operation_of_[id.index()] == kNone) {
    return nullptr;
  }
  return &operations_[operation_of_[id.index()]];
}

bool InNetwork::is_counted_elsewhere(TransferId id) const {
  const Operation* operation = operation_of(id);
  return operation != nullptr && operation->group.first != id;
}

std::span<const LinkId> InNetwork::links(TransferId id) const {
  const Operation* operation = operation_of(id);
  if (operation == nullptr) {
    return graph_.routes()[graph_.transfer(id).route.index()];
  }
  return operation->group.first == id ? std::span<const LinkId>(trees_[operation->tree].links)
                                      : std::span<const LinkId>();
}

}  // namespace rackrail::plan
