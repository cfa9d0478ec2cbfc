// What more machines buy: goodput by number of hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

struct HostCountPoint {
  std::size_t hosts = 0;
  std::size_t ranks = 0;
  std::int64_t global_batch = 0;
  Duration step_time;
  double goodput = 0;  ///< useful samples per second; just samples without a noise scale
  std::vector<std::string> without{};  ///< hosts that were left out for their narrow links
};

/// Plans for 1, 2, 4, … and all hosts, those that place() takes (planner/placement/placement.hpp)
/// with all their ranks, so that the order of hosts and racks in a file does not matter; counts
/// that leave fewer than two ranks are left out. And for all hosts but those behind the cut that
/// bounds an all-reduce (topology::allreduce_bound), where one cut does and these are the fewer:
/// what one slow host costs all. `make_plan` gets the cluster without the others and returns a plan
/// with its prediction. Ascending in hosts.
std::vector<HostCountPoint> goodput_by_hosts(
    const topology::Topology& topology, const plan::Workload& workload,
    const std::function<plan::Plan(const topology::Topology&)>& make_plan);

/// The fewest hosts whose goodput is within 1 % of the best; `points` must not be empty.
const HostCountPoint& best_host_count(const std::vector<HostCountPoint>& points);

}  // namespace rackrail::explore
