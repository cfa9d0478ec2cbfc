// What no plan under the same budget can beat.
#pragma once

#include <string>
#include <vector>

#include "plan/codec.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The last pass of a step, of which gradients are sent: those of passes before it only add up.
struct LastPass {
  Duration begin_of_backward;  ///< from the start of the step
  plan::ComputeTimes times;
};
/// One for each kind of rank: those of one device class with as many samples are symmetric.
std::vector<LastPass> last_passes(const topology::Topology& topology,
                                  const plan::Workload& workload, const plan::BatchPlan& batch);

struct LowerBound {
  Duration time;
  std::string reason;
};

/// What bounds an all-reduce on this cluster: topology::joint_allreduce_bound, with the switches
/// that say that they reduce or multicast, where there are any.
topology::AllReduceBound network_bound(const topology::Topology& topology);

/// The largest of
///   compute: forward, backward and optimiser of the slowest rank;
///   for every tensor i: forward + time until gradient i is ready + (wire bytes of gradients i,
///   i+1, …) / A + optimiser, since none of those may leave before gradient i is there (on the
///   slowest rank). A is the bound on all-reduce (network_bound); the wire bytes take the smallest
///   ratio that an allowed codec gives each tensor, on every link; `is_protected` ones (by tensor)
///   have none beyond FP16; and
///   forward + time until the last gradient is ready + latency between the farthest ranks
///   (topology::latency_bound) + optimiser.
/// Where links let bursts pass at once, a tensor's is less by topology::longest_burst_time, and
///   wire bytes of all gradients / A is one more, since of many steps in a row each fills the
///   buckets that it empties.
LowerBound lower_bound(const topology::Topology& topology, const plan::Workload& workload,
                       const plan::BatchPlan& batch, const std::vector<plan::Codec>& allowed,
                       const std::vector<bool>& is_protected);

}  // namespace rackrail::planner
