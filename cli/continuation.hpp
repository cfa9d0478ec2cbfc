// How a training job continues with another plan. It does so after a loss (`--on-loss continue`),
// when something has become slow (`--on-slow`), when another batch is better (`--on-noise`) or on
// request (`rackrail job replan`). Holds the callbacks for the runtime and the reports to the user.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "cli/batch_watch.hpp"
#include "cli/session.hpp"
#include "cli/slow_watch.hpp"
#include "cli/survival.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "runtime/launch/job.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

struct ContinuationOptions {
  bool survives_losses = false;  ///< otherwise a loss ends the job
  /// How long to wait for another worker in the place of a lost one; none: not at all.
  std::optional<Duration> replacement_deadline;
  std::optional<SlowWatch::Action> on_slow;       ///< none: not looked for
  std::optional<BatchWatch::Options> on_noise{};  ///< none: the batch stays; else with on_slow
  double rate_scale = 1;                          ///< of an emulated network
  bool has_servers = false;                       ///< all plans must be for parameter servers
  bool is_on_gpus = false;                        ///< whose executors hold no route to a rate
};

class Continuation {
 public:
  /// `plan` is for `cluster` and `workload`; keeps references to the session, the plan and the
  /// cluster.
  Continuation(Session& session, const ContinuationOptions& options, const plan::Plan& plan,
               const topology::Topology& cluster, plan::Workload workload);
  Continuation(const Continuation&) = delete;
  Continuation& operator=(const Continuation&) = delete;

  /// This object must outlive the job.
  void attach(runtime::JobOptions& job);

  /// The live estimate at the job's end, where the batch was watched.
  std::optional<double> noise_scale() const;
  /// After the job: what joins these ranks of the first plan.
  topology::Topology cluster_of(const std::vector<Rank>& ranks) const;
  void add_to(nlohmann::json& result, const runtime::JobResult& job) const;

 private:
  plan::Plan plan_for(const std::vector<Rank>& left);
  std::optional<runtime::JobOptions::BetterPlan> measured(const runtime::StepMeasurement& step);
  std::optional<runtime::JobOptions::BetterPlan> better_after(const runtime::StepMeasurement& step);
  runtime::JobOptions::Offer offer();
  void set_plan(const plan::Plan& plan);

  Session& session_;
  const ContinuationOptions options_;
  const plan::Plan& plan_;
  SurvivalPlans plans_;
  std::optional<SlowWatch> watch_;
  std::optional<BatchWatch> batch_watch_;
  plan::Plan plan_now_;
  std::vector<Rank> ranks_now_;
  std::vector<SurvivalPlans::Weighed> requests_;                   ///< for other plans
  std::map<std::vector<Rank>, PlanChanges> changes_after_losses_;  ///< by who goes on
};

}  // namespace rackrail::cli
