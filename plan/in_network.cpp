#include "plan/in_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
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

LogicalTree root_of(const TransferGraph& graph, const TransferGroup& group,
                    const topology::Topology& topology) {
  const Transfer& first = graph.transfer(group.first);
  const bool copies = is_copy(graph, group);
  return {topology, topology.node_of(copies ? first.src : first.dst), copies};
}

InNetwork::Tree tree_of(const TransferGraph& graph, const TransferGroup& group,
                        const topology::Topology& topology) {
  LogicalTree logical = root_of(graph, group, topology);
  InNetwork::Tree tree;
  for (const Transfer& t : members(graph, group)) {
    const std::vector<LinkId>& route = graph.routes()[t.route.index()];
    (void)logical.add(route);
    tree.latency = std::max(tree.latency, topology::route_latency(topology, route));
    if (const Bandwidth rate = graph.rate(t.route);
        rate > Bandwidth() && (tree.rate == Bandwidth() || rate < tree.rate)) {
      tree.rate = rate;
    }
  }
  tree.links = logical.links();
  tree.has_meeting_edges = logical.has_meeting_edges();
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
  LogicalTree tree = root_of(graph, group, topology);
  for (const Transfer& t : members(graph, group)) {
    if (auto problem = tree.add(graph.routes()[t.route.index()])) {
      return problem;
    }
  }
  return std::nullopt;
}

InNetwork::InNetwork(const TransferGraph& graph, const topology::Topology& topology,
                     MeetingEdges meeting)
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
      Tree found = tree_of(graph, group, topology);
      if (!found.has_meeting_edges || meeting == MeetingEdges::kCarriedOut) {
        tree->second = static_cast<std::uint32_t>(trees_.size());
        trees_.push_back(std::move(found));
      }
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
