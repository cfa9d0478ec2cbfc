// The conditions under which a plan is evaluated: one undisturbed step, the steps and faults of a
// scenario file, or a long run with failures.
#pragma once

#include <cstdint>
#include <optional>

#include "explore/outages.hpp"
#include "explore/scenario.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

/// A scenario file of sim/scenario.hpp and explore/outages.hpp, and the options given beside it.
struct ConditionOptions {
  std::optional<Source> scenario;     ///< none: undisturbed
  int steps = 0;                      ///< to simulate; 0: as the scenario says, else one
  sim::StepChoice step;               ///< the one whose critical path is shown
  std::optional<std::uint64_t> seed;  ///< of all that is random; if none, the scenario's
};

struct Conditions {
  sim::SimulationOptions simulation;
  std::optional<OutageScenario> outages;
};

/// The conditions on this cluster. To be read for every cluster anew: what a scenario slows down
/// goes back to the rate that the link has there. Throws ConfigError for a file that is wrong, and
/// for what has no step that all wait for: an asynchronous run, or several jobs.
Conditions conditions_of(const ConditionOptions& options, const topology::Topology& topology);

/// Of one step its time; of several their mean.
Duration mean_time(const sim::StepResult& result);

/// How long a step takes under them, as mean_time() has it; of a run with outages, its time over
/// the steps whose samples count at its end, with what was lost, waited for and planned anew
/// meanwhile (in whole steps, as simulate_outages() counts). Throws what simulating and planning
/// throw.
Duration time_per_step(const plan::Plan& plan, const plan::Workload& workload,
                       const topology::Topology& topology, const Conditions& conditions);

}  // namespace rackrail::explore
