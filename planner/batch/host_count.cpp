#include "planner/batch/host_count.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "planner/batch.hpp"
#include "planner/place/hosts.hpp"
#include "planner/placement.hpp"
#include "topology/remove.hpp"

namespace rackrail::planner {

namespace {

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
  for (const PlacedHost& host : place(topology, {.hosts = count, .gpus_per_host = {}}).hosts) {
    others.erase(host.name);
  }
  return std::vector<std::string>(others.begin(), others.end());
}

}  // namespace

std::vector<HostCountPoint> goodput_by_hosts(
    const topology::Topology& topology, const plan::Workload& workload,
    const std::function<plan::Plan(const topology::Topology&)>& make_plan) {
  const std::vector<Host> hosts = hosts_of(topology);
  std::vector<HostCountPoint> points;
  const auto add = [&](std::size_t count, const topology::Topology& part) {
    const plan::Plan plan = make_plan(part);
    const std::int64_t batch = plan.batch.global_batch();
    points.push_back({count, part.rank_count(), batch, plan.prediction.step_time,
                      static_cast<double>(batch) / plan.prediction.step_time.seconds() *
                          statistical_efficiency(workload, batch)});
  };
  for (std::size_t count = 1; count < hosts.size(); count *= 2) {
    if (const auto others = all_but_placed(topology, hosts, count)) {
      add(count, topology::without(topology, *others, {}));
    }
  }
  if (topology.rank_count() > 1) {
    add(hosts.size(), topology);
  }
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

}  // namespace rackrail::planner
