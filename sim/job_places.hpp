// Who trains where, in scenario files: `placement` of the plan that is simulated, and `jobs` beside
// it (sim/jobs.hpp).
//
//   placement: { hosts: [host0, host1], start: 5 ms }
//   jobs:
//     - { plan: other.json, hosts: [host2, host3], start: 1 s, steps: 20, name: theirs }
//     - { plan: part.json, cluster: part.yaml, workload: resnet-50 }
//
// | key | meaning | if there is none |
// | plan | plan file, found beside the scenario; not in `placement` | |
// | hosts | the ranks of these hosts of the cluster, in this order | see ranks |
// | ranks | numbers of the cluster, by rank of the plan | those with the names the plan has |
// | start | of the first step | 0 |
// | steps | to simulate; not in `placement` | as many as the scenario says |
// | name | for tables | the plan file's |
// | cluster | that the plan was made for, where it is another than the one simulated on | the
//   shipped one of that name, if one is needed |
// | workload | of the plan; not in `placement` | the shipped one of that name |
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config_tree.hpp"
#include "base/ids.hpp"
#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct JobPlace {
  std::string plan;  ///< path; empty: the plan on the command line
  std::string name;
  std::string cluster;      ///< a file beside the scenario, or a name
  std::string workload;     ///< the same
  std::vector<Rank> ranks;  ///< none: by the names of the plan's ranks
  Duration start;
  std::optional<int> steps;
};

/// Throws ConfigError with file and line.
JobPlace read_placement(const ConfigValue& value, const topology::Topology& topology);
JobPlace read_job(const ConfigValue& value, const topology::Topology& topology);

}  // namespace rackrail::sim
