// "What is my bottleneck, and what would more of it buy?"
//
// There are two answers to the first question, and they often differ. The critical path shows where
// the step's time goes. But time saved on one path may reappear on the next one, and other events
// may take the path's place as soon as it is shorter. So every improvement is also simulated
// (finite differences): of a tier, and of the single link that the critical path waits for longest.
// The gain is (T − T′) / T for step times T before and T′ after.
//
// Both may be asked under a scenario (explore/conditions.hpp). T is then the mean over its steps,
// or the mean step time of a run with failures. The scenario is read anew for every changed cluster
// and its random numbers stay, so T′ is what simulating that cluster with that file gives. Faults
// are changed as well: how long would the step be without them?
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "explore/changes.hpp"
#include "explore/conditions.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

/// A kind of work on the critical path: "backward", "wire: rack-uplink" (by the tier of the
/// narrowest link of the route), "latency", …
struct Part {
  std::string what;
  Duration time;
  double share = 0;  ///< of the step; the shares add up to 1
  /// Of "wire": the link that was waited for longest, and how long.
  std::string link{};
  Duration link_time{};
};

struct Gain {
  std::string what;          ///< what becomes better: "rack-uplink bandwidth", "device speed", …
  std::string change;        ///< by how much: "+10 %", "x2", …
  Duration step_time;        ///< with the change; of the better plan where both were tried
  double gain = 0;           ///< share of the step that it saves; negative where it costs
  bool is_marginal = false;  ///< one of the 10 % changes
  Breadth breadth = Breadth::kKind;
  bool is_disturbance = false;               ///< without something that goes wrong
  std::optional<Duration> kept_plan_time{};  ///< with the plan as it is, where it was planned anew
};

struct Explanation {
  Duration step_time;        ///< time_per_step()
  std::size_t steps = 1;     ///< that were simulated
  std::size_t reported = 0;  ///< the one that the parts are of
  Duration reported_time;
  std::vector<Part> parts;   ///< longest first
  std::vector<Gain> gains;   ///< largest first
  std::size_t left_out = 0;  ///< changes that were not tried, as ExplainOptions::stop came first
  std::vector<std::string> notes;

  /// The largest of the 10 % changes, if any gains something. A narrower change is preferred where
  /// its gain is within a hundredth of the largest. A change of all tiers counts only where it
  /// gains more than twice as much as any other: then no single thing is the bottleneck, as where
  /// two tiers bind equally.
  const Gain* bottleneck() const;
  /// The single fault that costs most, if any does; several together where none costs anything
  /// alone.
  const Gain* worst_disturbance() const;
};

struct ExplainOptions {
  ConditionOptions conditions;
  std::vector<NamedLinks> links;  ///< to be changed by themselves, too
  /// Plans anew for every change, with the plan's batch and error budget, and takes the better of
  /// that plan and the old one; a gain named "plan" says what planning anew buys alone. Planned is
  /// for undisturbed steps.
  bool replan = false;
  std::size_t threads = 0;  ///< one per core if 0
  /// Asked between changes: from the first true on the others are left out. May be empty.
  std::function<bool()> stop;
  /// Called after every simulation with how many of how many are done; from one thread at a time.
  std::function<void(std::size_t, std::size_t)> progress;
};

/// Throws what simulating and planning throw.
Explanation explain(const plan::Plan& plan, const plan::Workload& workload,
                    const topology::Topology& topology, const ExplainOptions& options);

}  // namespace rackrail::explore
