// Disturbances of a simulation: slow devices, links that change, background traffic.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// Compute pieces (forward, backward, optimiser) of some ranks take longer.
struct SlowDevice {
  std::vector<Rank> ranks;  ///< none: all
  double factor = 1;        ///< of the time
  /// Of the logarithm of another factor, log-normal with mean 1, drawn for each rank and step.
  double sigma = 0;
  int first_step = 0;
  int last_step = INT_MAX;
};

struct CapacityChange {
  Duration at;  ///< since the start of the simulation
  LinkId link;
  Bandwidth bandwidth;  ///< from then on; 0 for a link that is cut
};

/// Messages from one rank to another over the topology's route, beside those of the plan.
struct BackgroundTraffic {
  Rank src;
  Rank dst;
  Bytes message;     ///< at least 1 B
  Duration start;    ///< of the first one
  Duration every;    ///< between starts; 0: each starts when the one before has left
  Bandwidth cap{0};  ///< of each message; 0: none
};

struct Disturbances {
  std::vector<SlowDevice> slow_devices;
  std::vector<CapacityChange> capacity;
  std::vector<BackgroundTraffic> background;
  std::uint64_t seed = 0;

  bool empty() const { return slow_devices.empty() && capacity.empty() && background.empty(); }
};

/// By how much longer than planned a rank computes in a step.
double slowdown(const Disturbances& disturbances, Rank rank, int step);

/// The cluster with every link at the most that it carries at any time until then: what no schedule
/// can do faster there, none can under the disturbances. Links that are cut all the time keep a
/// byte per second. Numbers of links stay.
topology::Topology at_best(const topology::Topology& topology, const Disturbances& disturbances,
                           Duration until);

}  // namespace rackrail::sim
