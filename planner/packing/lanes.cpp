#include "planner/packing/lanes.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace rackrail::planner {

namespace {

constexpr std::uint32_t kNoLane = 0xffffffff;
constexpr std::size_t kManyPerRank = 16;  // lanes

/// By vertex those that are reached over it first, from the first rank.
std::vector<std::vector<NodeId>> shortest_ways(const topology::Topology& topology) {
  std::vector<std::vector<NodeId>> branches(topology.node_count());
  std::vector<bool> is_reached(topology.node_count());
  std::vector<NodeId> queue{topology.node_of(Rank(0))};
  is_reached[queue.front().index()] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const NodeId here = queue[i];
    for (const LinkId id : topology.links_out_of(here)) {
      const topology::Link& link = topology.link(id);
      if (link.kind != topology::LinkKind::kShared && !is_reached[link.to.index()]) {
        is_reached[link.to.index()] = true;
        branches[here.index()].push_back(link.to);
        queue.push_back(link.to);
      }
    }
  }
  return branches;
}

}  // namespace

RankLanes::RankLanes(const topology::Topology& topology, const std::vector<double>& prices)
    : topology_(topology),
      ranks_(static_cast<std::uint32_t>(topology.rank_count())),
      paths_(topology) {
  number_hosts();
  paths_.find(prices);
  join(paths_.arcs().size() <= kManyPerRank * ranks_);
  if (central_ranks(1).empty()) {
    join(true);
  }
  std::vector<bool> is_lane;
  for (const std::uint32_t lane : lane_of_) {
    is_lane.push_back(lane != kNoLane);
  }
  paths_.find_only(std::move(is_lane));
}

void RankLanes::find(const std::vector<double>& prices) {
  paths_.find(prices);
  add_routes();
}

/// Lanes over the paths found last, between all ranks that they join or some of them.
void RankLanes::join(bool to_all) {
  lanes_.clear();
  lane_of_.assign(std::size_t{ranks_} * ranks_, kNoLane);
  for (int back = 0; back < 2; ++back) {
    next_[back].assign(ranks_, {});
    distances_[back].assign(ranks_, {});
  }
  for (const PricedArc& arc : paths_.arcs()) {
    if (to_all || may_be_joined(arc.from, arc.to)) {
      lane_of_[std::size_t{arc.from} * ranks_ + arc.to] = static_cast<std::uint32_t>(lanes_.size());
      lanes_.push_back({arc.from, arc.to, {}});
      next_[0][arc.from].push_back(arc.to);
      next_[1][arc.to].push_back(arc.from);
    }
  }
  add_routes();
}

void RankLanes::add_routes() {
  for (std::size_t a = 0; a < paths_.arcs().size(); ++a) {
    const PricedArc& arc = paths_.arcs()[a];
    const std::uint32_t lane = lane_of_[std::size_t{arc.from} * ranks_ + arc.to];
    if (lane == kNoLane) {
      continue;  // of the first paths alone
    }
    auto& known = lanes_[lane].routes;
    if (std::find(known.begin(), known.end(), paths_.route_of(a)) == known.end()) {
      known.push_back(paths_.route_of(a));
    }
  }
}

/// In an order in which those of a rack, or of whatever else has a way in, follow one another: as a
/// tree of shortest ways from the first rank is gone through, each branch to its end. A rank
/// without a host is one of its own.
void RankLanes::number_hosts() {
  const std::vector<std::vector<NodeId>> branches = shortest_ways(topology_);
  std::map<std::string, std::uint32_t> numbers;
  host_of_.assign(ranks_, 0);
  std::vector<NodeId> open{topology_.node_of(Rank(0))};
  while (!open.empty()) {
    const NodeId here = open.back();
    open.pop_back();
    const std::vector<NodeId>& behind = branches[here.index()];
    open.insert(open.end(), behind.rbegin(), behind.rend());
    if (const auto rank = topology_.rank_of(here)) {
      const topology::Node& node = topology_.node(here);
      const std::string host = node.host.empty() ? "\n" + node.name : node.host;
      host_of_[rank->index()] =
          numbers.emplace(host, static_cast<std::uint32_t>(numbers.size())).first->second;
    }
  }
  hosts_ = static_cast<std::uint32_t>(numbers.size());
}

bool RankLanes::may_be_joined(std::uint32_t a, std::uint32_t b) const {
  const std::uint32_t ahead = (host_of_[a] + hosts_ - host_of_[b]) % hosts_;
  const std::uint32_t apart = std::min(ahead, hosts_ - ahead);
  return (apart & (apart - 1)) == 0;
}

const std::vector<std::uint32_t>& RankLanes::distances(std::uint32_t root, bool back) {
  const int way = back ? 1 : 0;
  std::vector<std::uint32_t>& distance = distances_[way][root];
  if (!distance.empty()) {
    return distance;
  }
  distance.assign(ranks_, kFar);
  std::vector<std::uint32_t> queue{root};
  distance[root] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t next : next_[way][queue[i]]) {
      if (distance[next] == kFar) {
        distance[next] = distance[queue[i]] + 1;
        queue.push_back(next);
      }
    }
  }
  return distance;
}

std::vector<std::uint32_t> RankLanes::central_ranks(double times) {
  std::vector<std::uint32_t> furthest;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const auto& there = distances(r, false);
    const auto& back = distances(r, true);
    furthest.push_back(std::max(*std::max_element(there.begin(), there.end()),
                                *std::max_element(back.begin(), back.end())));
    if (furthest.back() == kFar) {
      return {};
    }
  }
  const double most = times * *std::min_element(furthest.begin(), furthest.end());
  std::vector<std::uint32_t> central;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (furthest[r] <= most) {
      central.push_back(r);
    }
  }
  return central;
}

}  // namespace rackrail::planner
