#include "planner/batch/host_count.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <string>

#include "planner/batch.hpp"
#include "topology/remove.hpp"

namespace rackrail::planner {

namespace {

std::vector<std::string> hosts_in_rank_order(const topology::Topology& topology) {
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const topology::Node& node = topology.node(topology.node_of(Rank(r)));
    const std::string& host = node.host.empty() ? node.name : node.host;
    if (seen.insert(host).second) {
      hosts.push_back(host);
    }
  }
  return hosts;
}

}  // namespace

std::vector<HostCountPoint> goodput_by_hosts(
    const topology::Topology& topology, const plan::Workload& workload,
    const std::function<plan::Plan(const topology::Topology&)>& make_plan) {
  const std::vector<std::string> hosts = hosts_in_rank_order(topology);
  std::vector<std::size_t> ranks_of(hosts.size() + 1, 0);  // of the first so many hosts
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const topology::Node& node = topology.node(topology.node_of(Rank(r)));
    const auto at =
        std::find(hosts.begin(), hosts.end(), node.host.empty() ? node.name : node.host);
    ++ranks_of[static_cast<std::size_t>(at - hosts.begin()) + 1];
  }
  std::vector<HostCountPoint> points;
  std::size_t ranks = 0;
  std::size_t next = 1;
  for (std::size_t count = 1; count <= hosts.size(); ++count) {
    ranks += ranks_of[count];
    if (count != next && count != hosts.size()) {
      continue;
    }
    next = 2 * count;
    if (ranks < 2) {
      continue;
    }
    const auto others = std::span(hosts).subspan(count);
    const plan::Plan plan =
        make_plan(others.empty() ? topology : topology::without(topology, others, {}));
    const std::int64_t batch = plan.batch.global_batch();
    points.push_back({count, ranks, batch, plan.prediction.step_time,
                      static_cast<double>(batch) / plan.prediction.step_time.seconds() *
                          statistical_efficiency(workload, batch)});
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
