// Scenario files: how a plan is run, and which faults occur meanwhile. configs/faults has examples.
//
//   name: a cut in the middle
//   steps: 20                # to simulate
//   staleness: 1             # SimulationOptions::staleness; likewise local_steps
//   asynchronous: true       # simulate_asynchronous()
//   network: packet          # flow is the default
//   packets: { queue_capacity: 16 MiB, mark_from: 4 us, dcqcn: { gain: 0.01 } }  # PacketOptions
//   multipath: ecmp          # Multipath; pinned is the default
//   connections: 4           # between two ranks, with ecmp; one is the default
//   seed: 7
//   loading: { batch: 20 ms, prefetch: 2 }
//   slow_devices:            # SlowDevice
//     - { ranks: [3, 4], factor: 1.5, first_step: 10, last_step: 12 }
//     - { sigma: 0.1 }
//   links:                   # a name as `rackrail topology show` has it, or all of a tier;
//                            # a→b means all from a to b, a→b#2 the second of them
//     - { link: tor0→core, from: 1 s, until: 2 s, bandwidth: 10 Gbit/s }
//     - { tier: uplink, from: 3 s, cut: true, until: 3500 ms }
//     - { link: core→tor1, flapping: { every: 100 ms, for: 5 ms }, from: 4 s, until: 5 s }
//     - { link: tor1→core, capacity: uplink.csv }   # rows "time,bandwidth", with units
//   background:              # BackgroundTraffic
//     - { from: 0, to: 5, message: 1 MB, every: 10 ms, start: 1 s, rate: 1 Gbit/s }
//   placement: { hosts: [host0, host1] }   # of this plan, and `jobs` beside it: sim/job_places.hpp
//   jobs:
//     - { plan: other.json, hosts: [host2, host3], start: 1 s, steps: 20 }
//
// All keys are optional. At `until` a link goes back to its own rate; without one it stays as it
// is. Where entries for a link overlap in time, the slowest of them counts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sim/job_places.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct Scenario {
  std::string name;
  SimulationOptions options;
  JobPlace placement;          ///< of the plan that is simulated
  std::vector<JobPlace> jobs;  ///< beside it
  bool sets_packets = false;   ///< whether the file says `packets`
};

/// Ranks and links are those of `topology`; files are found beside the scenario. Throws ConfigError
/// with the file and line of what is wrong.
Scenario parse_scenario(const std::string& file, const std::string& content,
                        const topology::Topology& topology);
Scenario read_scenario(const std::string& file, const topology::Topology& topology);

/// The files beside the scenario that it names (capacities, plans, clusters and workloads of jobs)
/// and that are there: results depend on them as well.
std::vector<std::filesystem::path> files_of_scenario(const std::string& file,
                                                     const std::string& content);

}  // namespace rackrail::sim
