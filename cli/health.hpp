// Figures that tell at a glance whether a training step is well spent, with their thresholds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

struct HealthFigure {
  std::string what;
  double share = 0;              ///< of the step, 0 to 1
  std::optional<Duration> time;  ///< of figures with a limit in time: that
  std::string limit;             ///< in words: "below 20 %"
  bool is_healthy = false;

  /// The time where it counts, else the share.
  std::string text() const;
};

/// Of a simulated step:
/// - "gradient synchronisation": share of it that nothing hides, beside the slowest device's
/// compute
///   time and waiting for data; below a fifth;
/// - "device busy": share in which devices compute, on average; above seven tenths;
/// - "host-device copies": the time for which the busiest link between a processor and the PCIe of
///   its devices carries gradients, at its full rate: what crosses there is staged in host memory,
///   as where NCCL does without GPUDirect. Below 5 ms; left out where the cluster has no such link;
/// - "data starvation": share in which a device waits for its loader; below a tenth, the limit of
///   MLPerf Storage for accelerators. Left out where nothing loads data (`loads`).
std::vector<HealthFigure> health(const sim::StepResult& result, const topology::Topology& cluster,
                                 bool loads);

}  // namespace rackrail::cli
