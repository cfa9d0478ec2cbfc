// `train --on-slow`: what happens when links and ranks are slower than the plan assumes.
//
// Every finding (runtime/watch/slow_detector.hpp) is reported. With Action::kReplan there is then a
// plan for the cluster as it is now, made as after a loss. All ranks adopt it where its predicted
// step is shorter than with the plan in use, by SurvivalPlans::kWorthIt at least. Both predictions
// count slow links, slow ranks and the samples of each rank. The change costs at most the step in
// progress, and the residuals of error feedback.
//
// Used on the thread that calls back for the coordinator; the results are read after the job.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "cli/survival.hpp"
#include "plan/plan.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/watch/slow_detector.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

class SlowWatch {
 public:
  enum class Action { kReport, kReplan };
  /// `plan` is for `cluster`; keeps references to the cluster and the plans to come.
  SlowWatch(Action action, plan::Plan plan, const topology::Topology& cluster, SurvivalPlans& plans,
            const runtime::DetectorOptions& options, std::function<void(const std::string&)> say);

  /// Where there is no plan for what was found, the job goes on as it is.
  std::optional<runtime::JobOptions::BetterPlan> measured(const runtime::StepMeasurement& step);
  /// The job goes on with these ranks.
  void began(const runtime::EpochBegin& begin);
  /// The plan of the epoch that is next, where it does not come from here.
  void set_plan(plan::Plan plan) { plan_ = std::move(plan); }

  /// What is not as in the cluster, as far as it was found.
  const std::map<LinkId, Bandwidth>& rates() const { return detector_.rates(); }
  const runtime::BatchFactors& factors() const { return detector_.factors(); }

  /// A list of findings, and one of [step, seconds of its slowest rank].
  nlohmann::json findings_json() const;
  /// Links whose rate is not the cluster's, as far as it was found, at the end.
  nlohmann::json link_rates_json() const;
  nlohmann::json step_times_json() const;

 private:
  struct Entry {
    runtime::SlowFinding finding;
    std::string text;                ///< one line
    std::string outcome;             ///< "new plan", "plan kept", "reported", "no plan: …"
    std::optional<Duration> kept;    ///< step predicted with the plan in use
    std::optional<Duration> better;  ///< with the new one
    std::optional<PlanChanges> changes{};
    std::optional<runtime::EpochBegin> begin;
  };

  std::string describe(const runtime::SlowFinding& finding) const;
  std::string names_of(const std::vector<LinkId>& links) const;
  std::optional<plan::Plan> plan_after(Entry& entry);

  const Action action_;
  plan::Plan plan_;
  const std::vector<std::string> rank_names_;
  const topology::Topology& cluster_;
  SurvivalPlans& plans_;
  runtime::SlowDetector detector_;
  const std::function<void(const std::string&)> say_;
  std::vector<Rank> ranks_;
  std::vector<Entry> entries_;
  std::map<std::uint32_t, Duration> step_times_;
};

}  // namespace rackrail::cli
