#include "planner/packing/priced_paths.hpp"

#include <algorithm>
#include <limits>

namespace rackrail::planner {

PricedPaths::PricedPaths(const topology::Topology& topology, Over over, bool reversed)
    : topology_(topology), is_reversed_(reversed), number_(topology.node_count(), kPassed) {
  const auto add = [&](NodeId node) {
    number_[node.index()] = static_cast<std::uint32_t>(vertices_.size());
    vertices_.push_back(node);
  };
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    add(topology.node_of(Rank(r)));
  }
  for (std::size_t v = 0; over == Over::kRanksAndSwitches && v < topology.node_count(); ++v) {
    const topology::Node& node = topology.node(NodeId(v));
    if (!topology.rank_of(NodeId(v)) && (reversed ? node.reduces : node.multicasts)) {
      add(NodeId(v));
    }
  }
}

NodeId PricedPaths::near(LinkId link) const {
  return is_reversed_ ? topology_.link(link).to : topology_.link(link).from;
}

NodeId PricedPaths::far(LinkId link) const {
  return is_reversed_ ? topology_.link(link).from : topology_.link(link).to;
}

void PricedPaths::find(const std::vector<double>& prices) {
  arcs_.clear();
  route_of_.clear();
  for (std::uint32_t source = 0; source < vertices_.size(); ++source) {
    find_from(source, prices);
  }
}

void PricedPaths::find_from(std::uint32_t source, const std::vector<double>& prices) {
  price_.assign(topology_.node_count(), std::numeric_limits<double>::infinity());
  last_.resize(topology_.node_count());
  is_done_.assign(topology_.node_count(), 0);
  const NodeId start = vertices_[source];
  price_[start.index()] = 0;
  queue_.emplace(0, 0, start.value());
  while (!queue_.empty()) {
    const auto [here_price, links, node] = queue_.top();
    queue_.pop();
    if (is_done_[node] != 0) {
      continue;
    }
    is_done_[node] = 1;
    const NodeId here(node);
    if (const std::uint32_t vertex = number_[node]; vertex != kPassed && here != start) {
      if (only_.empty() || only_[source * size() + vertex]) {
        arcs_.push_back({source, vertex, here_price});
        route_of_.push_back(number_of_route(source, vertex));
      }
      continue;
    }
    for (const LinkId id :
         is_reversed_ ? topology_.links_into(here) : topology_.links_out_of(here)) {
      const NodeId next = far(id);
      const double there = here_price + prices[id.index()];
      if (topology_.link(id).kind != topology::LinkKind::kShared && is_done_[next.index()] == 0 &&
          there < price_[next.index()]) {
        price_[next.index()] = there;
        last_[next.index()] = id;
        queue_.emplace(there, links + 1, next.value());
      }
    }
  }
}

/// Of that which the last search found.
std::uint32_t PricedPaths::number_of_route(std::uint32_t from, std::uint32_t to) {
  route_.clear();
  for (NodeId at = vertices_[to]; at != vertices_[from]; at = near(route_.back())) {
    route_.push_back(last_[at.index()]);
  }
  std::ranges::reverse(route_);
  std::vector<std::uint32_t>& known = routes_of_[from * size() + to];
  for (const std::uint32_t number : known) {
    if (routes_[number] == route_) {
      return number;
    }
  }
  known.push_back(static_cast<std::uint32_t>(routes_.size()));
  routes_.push_back(route_);
  return known.back();
}

}  // namespace rackrail::planner
