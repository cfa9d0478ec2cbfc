// What the simulator says of a plan when it runs on this machine instead of on its cluster.
#pragma once

#include <optional>
#include <vector>

#include "cli/calibration.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "runtime/trainer/synchrony.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

/// Steps to simulate for the last of them to be like all that follow.
inline constexpr int kStepsUntilSteady = 3;

/// The same transfers over another topology with as many ranks: routes are not pinned any more.
plan::Plan on_other_topology(const plan::Plan& plan, const topology::Topology& topology);

/// One step of `plan` by workers on this machine. `workload` holds compute times measured here.
sim::StepResult predict_here(const plan::Plan& plan, const plan::Workload& workload,
                             const Calibration& calibration);

/// What is said of a whole training beforehand.
struct TrainingPrediction {
  Duration step_time;  ///< of one step; the mean where not all are alike, of the slowest rank
  std::vector<plan::TimelineEvent> timeline;  ///< of one that synchronises; none where ranks do not
  /// As in sim::AsynchronousResult; none where ranks are not asynchronous.
  std::optional<double> conflict_rate;
  std::optional<double> staleness_updates;
};

/// Simulated as a scenario with the same keys would be. A bound on the staleness is not simulated,
/// but for that of no step at all: ranks never wait for the slowest one. Throws PlanError where the
/// plan's schedules are no parameter servers and would have to be.
TrainingPrediction predict_training(const plan::Plan& plan, const plan::Workload& workload,
                                    const Calibration& calibration,
                                    const trainer::Synchrony& synchrony);

}  // namespace rackrail::cli
