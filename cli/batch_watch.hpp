// `train --on-noise`: adapts a job's batch when its noise scale or its links' rates change.
//
// The gradient noise scale is estimated live from the norms that all ranks measure in each step
// (plan/noise_scale.hpp). It is used once `every` steps have been measured. Every so many steps
// planner/batch/redecide compares the goodput of the batch in use with that of the best one. It
// simulates steps on the cluster as it is now, with the link rates and slow ranks that the slow
// watch has found. With Action::kRebatch, a batch that is better and stays better is adopted by all
// ranks in a new plan, as after a link has become slow. The plan has its own local batches and
// passes; its learning rate follows the rule of the first plan. The first plan's warm-up of the
// learning rate keeps its number of steps. The training keeps its number of samples, so with a
// larger batch fewer steps are left.
//
// The samples that the ranks measured show which batch is in use. A plan that was not adopted,
// because a worker was lost at the same time, is therefore forgotten.
//
// Used on the thread that calls back for the coordinator. A decision blocks that thread while some
// thirty steps are simulated. The results are read after the job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "cli/survival.hpp"
#include "plan/noise_scale.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/batch/redecide.hpp"
#include "runtime/launch/job.hpp"

namespace rackrail::cli {

class BatchWatch {
 public:
  enum class Action { kReport, kRebatch };
  struct Options {
    Action action = Action::kRebatch;
    std::uint32_t every = 20;                      ///< steps from one decision to the next
    std::optional<std::int64_t> max_global_batch;  ///< none: as `rackrail plan` without it
    planner::RedecisionRule rule{};
  };

  /// `plan` is for the workload; keeps a reference to the plans to come, whose batch it sets.
  BatchWatch(Options options, plan::Plan plan, plan::Workload workload, SurvivalPlans& plans,
             std::function<void(const std::string&)> say);

  /// Where there is no plan with the batch that was decided on, the job goes on as it is.
  std::optional<runtime::JobOptions::BetterPlan> measured(const runtime::StepMeasurement& step);
  /// The job goes on with these ranks.
  void began(const runtime::EpochBegin& begin);
  /// The plan of the epoch that is next, where it does not come from here.
  void set_plan(plan::Plan plan);

  /// Whether a plan from here may be about to be adopted.
  bool is_changing() const { return pending_.has_value(); }
  /// The live estimate; none while there is none.
  std::optional<double> noise_scale() const { return estimator_.noise_scale(); }
  /// A list of decisions, and one of [step, global batch] wherever that has changed.
  nlohmann::json decisions_json() const;
  nlohmann::json batches_json() const;

 private:
  struct Entry {
    std::uint32_t step = 0;
    double noise_scale = 0;
    std::int64_t batch = 0;  ///< in use
    planner::Redecision decision;
    std::string outcome;                           ///< "new plan", "batch kept", "reported", …
    std::optional<std::uint32_t> new_from_step{};  ///< first step that was measured with it
  };

  bool count(const std::map<Rank, runtime::StepMeasurement>& step);
  void note_batch(std::uint32_t step, std::int64_t samples);
  planner::Redecision decide(double noise_scale) const;
  plan::Plan plan_with(const plan::BatchPlan& batch) const;
  std::optional<runtime::JobOptions::BetterPlan> decide_after(std::uint32_t step);

  const Options options_;
  const plan::BatchPlan first_batch_;
  const plan::Workload workload_;
  SurvivalPlans& plans_;
  const std::function<void(const std::string&)> say_;
  plan::Plan plan_;
  std::vector<Rank> ranks_;
  plan::NoiseScaleEstimator estimator_;
  planner::RedecisionState state_;
  std::optional<plan::Plan> pending_;  // until it is seen in what ranks measure
  bool has_begun_ = false;             // an epoch, since there is a pending plan
  std::map<std::uint32_t, std::map<Rank, runtime::StepMeasurement>> incomplete_;  // by step
  std::uint32_t decided_ = 0;                                                     // step
  std::vector<std::pair<std::uint32_t, std::int64_t>> batches_;
  std::vector<Entry> entries_;
};

}  // namespace rackrail::cli
