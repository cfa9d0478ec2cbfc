// Local batches with which unequal devices finish together.
//
// Device i needs α_i + β_i·b_i for b_i samples. All finish at T when b_i = (T − α_i)/β_i, and their
// sum is the wanted B when T = (B + Σ α_i/β_i)/Σ(1/β_i). A device whose b_i would leave its limits
// (memory above, one sample below) is set to the limit and the others are solved again. Both kinds
// of limit can be violated at once; the side whose violations weigh more is fixed, as water filling
// wants: Σ clip(b_i(T)) grows with T, so if clipping makes the sum too large T must fall and what
// is at the lower limit stays there, and the other way round. Each round fixes at least one device:
// O(n²) at most. Whole samples then come by largest remainder, which puts every device within one
// sample of T. Cannikin and LB-BSP choose batches likewise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Compute of one device, and what it can hold.
struct DeviceSpeed {
  Duration fixed;            ///< α: of a pass, whatever the batch
  Duration per_sample;       ///< β: positive
  std::int64_t largest = 0;  ///< samples that fit into memory, at least 1
};

/// One batch per device, each from 1 to its largest, in sum `samples`. None when the devices cannot
/// hold so many, or fewer samples than devices are asked for. Throws PlanError for a device whose
/// time per sample or largest batch is not positive.
std::optional<std::vector<std::int64_t>> equal_finish(const std::vector<DeviceSpeed>& devices,
                                                      std::int64_t samples);

/// Longest α_i + β_i·b_i, and by how much of it the shortest is shorter.
struct FinishTimes {
  Duration longest;
  double spread = 0;
};
FinishTimes finish_times(const std::vector<DeviceSpeed>& devices,
                         const std::vector<std::int64_t>& batches);

/// Speed of each rank at one of `passes` passes of a step by plan::compute_times, which is linear
/// in the batch, and what its memory has room for. The optimiser, once a step, counts as fixed; a
/// sample takes at least a picosecond. Throws ConfigError for a device class that compute_times
/// does not know and for memory without room for one sample.
std::vector<DeviceSpeed> device_speeds(const topology::Topology& topology,
                                       const plan::Workload& workload, std::int64_t passes = 1);

}  // namespace rackrail::planner
