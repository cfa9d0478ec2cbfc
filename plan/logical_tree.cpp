// The logical tree of a group, from the routes of its members.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "plan/in_network.hpp"

namespace rackrail::plan {

bool LogicalTree::is_able(NodeId node) const {
  return outward_ ? topology_.node(node).multicasts : topology_.node(node).reduces;
}

NodeId LogicalTree::near(LinkId link) const {
  return outward_ ? topology_.link(link).from : topology_.link(link).to;
}

NodeId LogicalTree::far(LinkId link) const {
  return outward_ ? topology_.link(link).to : topology_.link(link).from;
}

std::optional<std::string> LogicalTree::add(std::span<const LinkId> route) {
  std::vector<Edge> edges;
  if (auto problem = edges_of(route, edges)) {
    return problem;
  }
  for (const Edge& edge : edges) {
    if (auto problem = problem_of(edge)) {
      return problem;
    }
  }
  std::vector<LinkId> added;
  for (Edge& edge : edges) {
    if (first_.empty()) {
      first_ = edge.links;
    }
    const auto [known, is_new] = edge_to_.try_emplace(edge.to, std::move(edge.links));
    if (is_new) {
      added.insert(added.end(), known->second.begin(), known->second.end());
    }
  }
  if (!outward_) {
    std::reverse(added.begin(), added.end());
  }
  links_.insert(links_.end(), added.begin(), added.end());
  return std::nullopt;
}

/// Of a route: it is divided where a switch on it is able.
std::optional<std::string> LogicalTree::edges_of(std::span<const LinkId> route,
                                                 std::vector<Edge>& edges) const {
  std::vector<LinkId> links;
  std::set<NodeId> passed;
  for (std::size_t i = 0; i < route.size(); ++i) {
    const LinkId id = outward_ ? route[i] : route[route.size() - 1 - i];
    if (id.index() >= topology_.link_count()) {
      return fmt::format("link {} is not in the cluster", id.value());
    }
    if (near(id) != root_ && topology_.rank_of(near(id)).has_value()) {
      return fmt::format("a route leads through '{}', which is a rank", name(near(id)));
    }
    links.push_back(id);
    const bool is_end = i + 1 == route.size();
    if (far(id) == root_ || ((is_end || is_able(far(id))) && !passed.insert(far(id)).second)) {
      return fmt::format("routes are not a tree: there are two paths at '{}'", name(far(id)));
    }
    if (is_end || is_able(far(id))) {
      edges.push_back({far(id), std::exchange(links, {})});
    }
  }
  return std::nullopt;
}

/// Why the tree can have no such edge, if so.
std::optional<std::string> LogicalTree::problem_of(const Edge& edge) const {
  if (near(edge.links.front()) == root_ && !first_.empty() && first_ != edge.links) {
    return problem_of_first(edge);
  }
  if (const auto known = edge_to_.find(edge.to);
      known != edge_to_.end() && known->second != edge.links) {
    return fmt::format("routes are not a tree: there are two paths at '{}'", name(edge.to));
  }
  return std::nullopt;
}

/// Of another edge at the root than the one that there is: which vertex would have to be able.
std::string LogicalTree::problem_of_first(const Edge& edge) const {
  const auto [here, there] =
      std::mismatch(edge.links.begin(), edge.links.end(), first_.begin(), first_.end());
  const LinkId parts = here != edge.links.end() ? *here : *there;
  if (near(parts) == root_) {
    return fmt::format("'{}' has more than one link of the tree", name(root_));
  }
  return fmt::format("'{}' would have to {}, which it cannot", name(near(parts)),
                     outward_ ? "multicast" : "reduce");
}

bool LogicalTree::has_meeting_edges() const {
  std::map<NodeId, const std::vector<LinkId>*> passed_by;  // vertices inside edges
  for (const auto& [to, links] : edge_to_) {
    for (std::size_t i = 0; i + 1 < links.size(); ++i) {
      const auto [known, is_new] = passed_by.emplace(far(links[i]), &links);
      if (!is_new) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace rackrail::plan
