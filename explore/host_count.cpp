#include "explore/host_count.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "planner/batch/batch.hpp"
#include "planner/placement/hosts.hpp"
#include "planner/placement/placement.hpp"
#include "topology/queries.hpp"
#include "topology/remove.hpp"

namespace rackrail::explore {

namespace {

using planner::Host;

/// Names of all hosts but those that place() takes; none where so many have fewer than two ranks.
std::optional<std::vector<std::string>> all_but_placed(const topology::Topology& topology,
                                                       const std::vector<Host>& hosts,
                                                       std::size_t count) {
  const bool has_two_ranks = count > 1 || std::ranges::any_of(hosts, [](const Host& host) {
                               return host.ranks.size() > 1;
                             });
  if (!has_two_ranks) {
    return std::nullopt;
  }
  std::set<std::string> others;
  for (const Host& host : hosts) {
    others.insert(host.name);
  }
  for (const planner::PlacedHost& host :
       planner::place(topology, {.hosts = count, .gpus_per_host = {}}).hosts) {
    others.erase(host.name);
  }
  return std::vector<std::string>(others.begin(), others.end());
}

/// All of whose ranks are on the smaller side of the cut that bounds an all-reduce, where that are
/// fewer than the others.
std::vector<std::string> behind_the_narrowest_cut(const topology::Topology& topology,
                                                  const std::vector<Host>& hosts) {
  const topology::Cut cut = topology::allreduce_bound(topology).cut;
  std::vector<bool> is_inside(topology.node_count());
  for (const NodeId node : cut.source_side) {
    is_inside[node.index()] = true;
  }
  const bool is_smaller_inside = 2 * cut.ranks_inside < topology.rank_count();
  std::vector<std::string> behind;
  for (const Host& host : hosts) {
    if (!cut.links.empty() && std::ranges::all_of(host.ranks, [&](Rank rank) {
          return is_inside[topology.node_of(rank).index()] == is_smaller_inside;
        })) {
      behind.push_back(host.name);
    }
  }
  std::size_t left = topology.rank_count();
  for (const Host& host : hosts) {
    left -= std::ranges::count(behind, host.name) > 0 ? host.ranks.size() : 0;
  }
  return 2 * behind.size() < hosts.size() && left > 1 ? behind : std::vector<std::string>();
}

}  // namespace

std::vector<HostCountPoint> goodput_by_hosts(
    const topology::Topology& topology, const plan::Workload& workload,
    const std::function<plan::Plan(const topology::Topology&)>& make_plan) {
  const std::vector<Host> hosts = planner::hosts_of(topology);
  std::vector<HostCountPoint> points;
  const auto add = [&](std::size_t count, const topology::Topology& part,
                       std::vector<std::string> without) {
    const plan::Plan plan = make_plan(part);
    const std::int64_t batch = plan.batch.global_batch();
    points.push_back({count, part.rank_count(), batch, plan.prediction.step_time,
                      static_cast<double>(batch) / plan.prediction.step_time.seconds() *
                          planner::statistical_efficiency(workload, batch),
                      std::move(without)});
  };
  std::vector<std::string> narrow = behind_the_narrowest_cut(topology, hosts);
  std::ranges::sort(narrow);
  bool is_narrow_left_out = narrow.empty();
  const auto leave_out = [&](std::size_t count, const std::vector<std::string>& others) {
    const bool is_narrow = others == narrow;
    is_narrow_left_out = is_narrow_left_out || is_narrow;
    add(count, topology::without(topology, others, {}),
        is_narrow ? narrow : std::vector<std::string>());
  };
  for (std::size_t count = 1; count < hosts.size(); count *= 2) {
    if (const auto others = all_but_placed(topology, hosts, count)) {
      leave_out(count, *others);
    }
  }
  if (!is_narrow_left_out && topology.rank_count() > 1) {
    leave_out(hosts.size() - narrow.size(), narrow);
  }
  if (topology.rank_count() > 1) {
    add(hosts.size(), topology, {});
  }
  std::ranges::stable_sort(points, {}, &HostCountPoint::hosts);
  return points;
}

const HostCountPoint& best_host_count(const std::vector<HostCountPoint>& points) {
  double most = 0;
  for (const HostCountPoint& point : points) {
    most = std::max(most, point.goodput);
  }
  constexpr double kAsGood = 0.99;
  return *std::find_if(points.begin(), points.end(), [&](const HostCountPoint& point) {
    return point.goodput >= kAsGood * most;
  });
}

}  // namespace rackrail::explore
