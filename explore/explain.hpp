// "What is my bottleneck, and what would more of it buy?"
//
// Two answers to the first question, which often differ. The critical path says what the step's
// time went into; but what is taken off one path may appear on the next one, and what is on the
// path may be replaced by something else as soon as it is shortened. So every improvement is also
// simulated (finite differences): gain = (T − T′) / T for step times T before and T′ after.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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
};

struct Gain {
  std::string what;          ///< what becomes better: "rack-uplink bandwidth", "device speed", …
  std::string change;        ///< by how much: "+10 %", "x2", …
  Duration step_time;        ///< with the change; of the better plan where both were tried
  double gain = 0;           ///< share of the step that it saves; negative where it costs
  bool is_marginal = false;  ///< one of the 10 % changes
  bool is_broad = false;     ///< of several things at once that could also be changed one by one
  std::optional<Duration> kept_plan_time{};  ///< with the plan as it is, where it was planned anew
};

struct Explanation {
  Duration step_time;
  std::vector<Part> parts;  ///< longest first
  std::vector<Gain> gains;  ///< largest first
  std::vector<std::string> notes;

  /// The largest of the 10 % changes, if any gains something. A broad one only where it gains more
  /// than twice as much as any other: then no single thing is the bottleneck, as where two tiers
  /// bind equally.
  const Gain* bottleneck() const;
};

struct ExplainOptions {
  /// Plans anew for every change, with the plan's batch and error budget, and takes the better of
  /// that plan and the old one; a gain named "plan" says what planning anew buys alone.
  bool replan = false;
  std::size_t threads = 0;  ///< one per core if 0
  /// Called after every simulation with how many of how many are done; from one thread at a time.
  std::function<void(std::size_t, std::size_t)> progress;
};

/// Throws what simulating and planning throw.
Explanation explain(const plan::Plan& plan, const plan::Workload& workload,
                    const topology::Topology& topology, const ExplainOptions& options);

}  // namespace rackrail::explore
