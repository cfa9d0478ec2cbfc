#include "planner/forest/ways.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "planner/forest/pacing.hpp"

namespace rackrail::planner {

void RankWays::find(const std::vector<double>& prices) {
  arcs_.clear();
  route_of_.clear();
  for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
    find_from(Rank(r), prices);
  }
  for (std::size_t arc = 0; arc < arcs_.size() && !lanes_.empty(); ++arc) {
    if (const auto lane = lane_of(route_of_[arc])) {
      arcs_[arc].price += prices[topology_.link_count() + *lane];
    }
  }
}

std::vector<Bandwidth> RankWays::make_lanes() {
  std::vector<Move> moves;
  for (std::size_t arc = 0; arc < arcs_.size(); ++arc) {
    lanes_.emplace(Ends(arcs_[arc].from, arcs_[arc].to), arc);
    moves.push_back({.weight = 1, .route = &routes_[route_of_[arc]]});
  }
  return proportional_rates(moves, topology_);
}

std::optional<std::size_t> RankWays::lane_of(std::uint32_t route) const {
  const auto lane = lanes_.find(ends_[route]);
  return lane != lanes_.end() ? std::optional(lane->second) : std::nullopt;
}

void RankWays::find_from(Rank source, const std::vector<double>& prices) {
  using Reached = std::tuple<double, std::size_t, std::uint32_t>;  // price, links, vertex
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  std::vector<double> price(topology_.node_count(), std::numeric_limits<double>::infinity());
  std::vector<LinkId> last(topology_.node_count());
  std::vector<bool> is_done(topology_.node_count());
  const NodeId start = topology_.node_of(source);
  price[start.index()] = 0;
  queue.emplace(0, 0, start.value());
  while (!queue.empty()) {
    const auto [here_price, links, vertex] = queue.top();
    queue.pop();
    if (is_done[vertex]) {
      continue;
    }
    is_done[vertex] = true;
    const NodeId here(vertex);
    if (const auto rank = topology_.rank_of(here); rank && here != start) {
      if (only_.empty() || only_[source.index() * topology_.rank_count() + rank->index()]) {
        add(source, *rank, here_price, last);
      }
      continue;
    }
    for (const LinkId id : topology_.links_out_of(here)) {
      const topology::Link& link = topology_.link(id);
      const double there = here_price + prices[id.index()];
      if (link.kind != topology::LinkKind::kShared && !is_done[link.to.index()] &&
          there < price[link.to.index()]) {
        price[link.to.index()] = there;
        last[link.to.index()] = id;
        queue.emplace(there, links + 1, link.to.value());
      }
    }
  }
}

void RankWays::add(Rank from, Rank to, double price, const std::vector<LinkId>& last) {
  topology::Route route;
  for (NodeId at = topology_.node_of(to); at != topology_.node_of(from);
       at = topology_.link(route.back()).from) {
    route.push_back(last[at.index()]);
  }
  std::reverse(route.begin(), route.end());
  const auto [known, is_new] = numbers_.emplace(route, static_cast<std::uint32_t>(routes_.size()));
  if (is_new) {
    routes_.push_back(std::move(route));
    ends_.emplace_back(from.value(), to.value());
  }
  arcs_.push_back({from.value(), to.value(), price});
  route_of_.push_back(known->second);
}

}  // namespace rackrail::planner
