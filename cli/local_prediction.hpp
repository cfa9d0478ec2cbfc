// What the simulator says of a plan when it runs on this machine instead of on its cluster.
#pragma once

#include "cli/calibration.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

/// Steps to simulate for the last of them to be like all that follow.
inline constexpr int kStepsUntilSteady = 3;

/// The same transfers over another topology with as many ranks: routes are not pinned any more.
plan::Plan on_other_topology(const plan::Plan& plan, const topology::Topology& topology);

/// One step of `plan` by workers on this machine. `workload` holds compute times measured here.
sim::StepResult predict_here(const plan::Plan& plan, const plan::Workload& workload,
                             const Calibration& calibration);

}  // namespace rackrail::cli
