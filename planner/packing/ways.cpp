#include "planner/packing/ways.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace rackrail::planner {

void RankWays::find(const std::vector<double>& prices) {
  arcs_.clear();
  route_of_.clear();
  for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
    find_from(Rank(r), prices);
  }
}

void RankWays::find_from(Rank source, const std::vector<double>& prices) {
  price_.assign(topology_.node_count(), std::numeric_limits<double>::infinity());
  last_.resize(topology_.node_count());
  is_done_.assign(topology_.node_count(), 0);
  const NodeId start = topology_.node_of(source);
  price_[start.index()] = 0;
  queue_.emplace(0, 0, start.value());
  while (!queue_.empty()) {
    const auto [here_price, links, vertex] = queue_.top();
    queue_.pop();
    if (is_done_[vertex] != 0) {
      continue;
    }
    is_done_[vertex] = 1;
    const NodeId here(vertex);
    if (const auto rank = topology_.rank_of(here); rank && here != start) {
      if (only_.empty() || only_[source.index() * topology_.rank_count() + rank->index()]) {
        add(source, *rank, here_price);
      }
      continue;
    }
    for (const LinkId id : topology_.links_out_of(here)) {
      const topology::Link& link = topology_.link(id);
      const double there = here_price + prices[id.index()];
      if (link.kind != topology::LinkKind::kShared && is_done_[link.to.index()] == 0 &&
          there < price_[link.to.index()]) {
        price_[link.to.index()] = there;
        last_[link.to.index()] = id;
        queue_.emplace(there, links + 1, link.to.value());
      }
    }
  }
}

void RankWays::add(Rank from, Rank to, double price) {
  arcs_.push_back({from.value(), to.value(), price});
  route_of_.push_back(number_of_route(from, to));
}

/// Of that which the last search found.
std::uint32_t RankWays::number_of_route(Rank from, Rank to) {
  route_.clear();
  for (NodeId at = topology_.node_of(to); at != topology_.node_of(from);
       at = topology_.link(route_.back()).from) {
    route_.push_back(last_[at.index()]);
  }
  std::ranges::reverse(route_);
  std::vector<std::uint32_t>& known =
      routes_of_[from.index() * topology_.rank_count() + to.index()];
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
