// A long run through failures and maintenance: how much of the time the cluster trains.
//
// Model. Between two events a run makes steps of one length, that of the plan for what is there,
// as simulated. When a host or cable fails, the step under way is lost; the survivors know after
// `detection` and go on after `recovery` more: with a new plan for what is left (replan), with a
// new plan and from the last checkpoint, so that the steps since are lost too (restart), or
// `recovery` after it is back (wait). A drain is announced: the step under way is finished, and
// nothing has to be detected. When something comes back, the step under way is finished, and
// training goes on with the plan for all after `recovery`. Outages that overlap are detected and
// recovered from beside each other: training goes on when the last of them is.
//
// A machine none of whose cables is left is lost with them. What is lost cannot be lost again
// before it is back.
//
// Fewer ranks share the samples of a step, and gradients are sent no more coarsely than before, as
// in `train --on-loss continue`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config_tree.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"

namespace rackrail::explore {

enum class Reaction : std::uint8_t { kReplan, kRestart, kWait };

struct Outage {
  std::string host;           ///< a machine, or
  std::vector<LinkId> links;  ///< cables: first the links in the named direction, then those back
  Duration at;
  std::optional<Duration> back;
  Duration detection;
  Duration recovery;
  Reaction then = Reaction::kReplan;
  bool is_drain = false;
};

struct OutageScenario {
  Duration duration;                    ///< of the run
  std::int64_t checkpoint_every = 100;  ///< steps
  std::vector<Outage> outages;
};

/// Reads the keys `duration`, `checkpoint_every` and `outages` of a scenario file; none if there
/// are no outages. Throws ConfigError with the place of what is wrong.
std::optional<OutageScenario> read_outages(const ConfigValue& root,
                                           const topology::Topology& topology);

struct Phase {
  std::string what;  ///< "all there", "without host3", "host3 lost: detection, new plan", …
  Duration start;
  Duration end;
  std::size_t ranks = 0;   ///< that train
  Duration step_time;      ///< 0 where nothing trains
  std::int64_t steps = 0;  ///< made
  std::int64_t lost = 0;   ///< of the steps made before, by going back to a checkpoint
  double samples = 0;      ///< of the steps made
};

struct OutageResult {
  std::vector<Phase> phases;
  double samples_per_s = 0;  ///< useful ones, over the whole run
  double undisturbed_samples_per_s = 0;
};

/// Plans anew with `options` for every set of machines that is left. Of `simulation` count what the
/// network and the devices are simulated as: rates of devices, level and its options, who chooses
/// routes, with how many connections and which seed. Throws ConfigError when a set leaves fewer
/// than two ranks, or parts that cannot reach each other.
OutageResult simulate_outages(const plan::Plan& plan, const plan::Workload& workload,
                              const topology::Topology& topology, const OutageScenario& scenario,
                              const planner::PlannerOptions& options,
                              const sim::SimulationOptions& simulation = {});

}  // namespace rackrail::explore
