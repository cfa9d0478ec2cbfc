// What the simulator says of a plan when it runs on this machine instead of on its cluster.
//
// Model. Workers on one machine share its cores, and everything they do costs core time: training,
// encoding, and moving a message from one process to another. So the machine is a single shared
// link whose bandwidth is (cores × bytes that one core moves per second); messages are flows over
// it, and computation of d seconds is a flow of d × (one core's bandwidth) that may use one core at
// most. The simulator's max–min solver then gives processor sharing for all of it at once.
#pragma once

#include <optional>
#include <vector>

#include "plan/calibration.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "runtime/trainer/synchrony.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

/// Steps to simulate for the last of them to be like all that follow.
inline constexpr int kStepsUntilSteady = 3;

/// `ranks` workers ("worker0" …) of device class "cpu" around the shared cores of this machine.
topology::Topology local_machine(const plan::Calibration& calibration, std::size_t ranks);

/// The same transfers over another topology with as many ranks: routes are not pinned any more.
plan::Plan on_other_topology(const plan::Plan& plan, const topology::Topology& topology);

/// One step of `plan` by workers on this machine. `workload` holds compute times measured here.
sim::StepResult predict_here(const plan::Plan& plan, const plan::Workload& workload,
                             const plan::Calibration& calibration);

/// What is predicted of a whole training before it runs.
struct TrainingPrediction {
  Duration step_time;  ///< of one step; where steps differ, the mean of the slowest rank
  std::vector<plan::TimelineEvent> timeline;  ///< of one that synchronises; none where ranks do not
  /// As in sim::AsynchronousResult; none where ranks are not asynchronous.
  std::optional<double> conflict_rate;
  std::optional<double> staleness_updates;
};

/// Simulated as a scenario with the same keys would be. A bound on the staleness is simulated only
/// if it is 0; with any other, ranks never wait for the slowest one. `plan` is one for `machine`,
/// whose costs are those of `calibration`: local_machine, or an emulated network
/// (cli/emulation.hpp). Throws PlanError where the schedules must be parameter servers and are not.
TrainingPrediction predict_training(const plan::Plan& plan, const plan::Workload& workload,
                                    const topology::Topology& machine,
                                    const plan::Calibration& calibration,
                                    const trainer::Synchrony& synchrony);

}  // namespace rackrail::cli
