// Why a plan is as it is: what each of its choices buys, and what others do without them.
//
// Every figure is a simulated step. A choice's gain is found by ablation: the plan with that one
// choice put back to the baseline's, and all else kept. Gains do not add up: choices lean on each
// other (a codec that the ring cannot carry needs the routes that can).
//
// After the search large buckets may be divided more finely, and routes held to rates
// (finished_plan.hpp): one more choice. A bucket that another choice leaves as it is stays divided
// so; one that has other routes, codecs or slices has them as the search does.
//
// A search that was stopped may have missed what is shown beside its plan. Where that is faster and
// keeps to the options, it becomes the plan, and the figures are those of that one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/request/options.hpp"
#include "planner/search/joint_search.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// A step that the plan is compared with.
struct Alternative {
  std::string name;
  std::string what;  ///< of what it consists, or what differs from the plan
  Duration step_time;
  std::int64_t global_batch = 0;
  /// By how much more time each useful sample takes than with the plan, as a share of the plan's:
  /// 0.1 is 10 % longer. By step times where the batch is the same.
  double against_plan = 0;
};

struct PlanReport {
  /// Baselines, fastest first: NCCL-like ring and double binary tree (FP32, all gradients in one
  /// message after backward), DDP-like ring (25 MiB, FP32 and FP16), parameter server, FP16
  /// everywhere with free routes and buckets. Those that the options exclude are absent. All with
  /// the plan's batch, the same on every rank, whether or not it fits there; where devices differ,
  /// `what` says how many samples that are.
  std::vector<Alternative> baselines;
  /// Each knob alone (planner/search/joint_search.hpp), fastest first; where devices differ, `what`
  /// says how many samples a rank has.
  std::vector<Alternative> single_knobs;
  /// The plan with one choice undone; what bought most first. Choices that are already the usual
  /// ones are absent, "fine division" where the search's plan is handed over as it is.
  std::vector<Alternative> choices;
  /// The best plan that the same search finds when the first and the last layer may be encoded
  /// beyond FP16, so −against_plan is what their protection costs; none where they are not
  /// protected or the search was stopped.
  std::optional<Alternative> unprotected;
  /// Rows that are absent because PlannerOptions::stop_report came first.
  std::vector<std::string> not_reached;
};

struct ExplainedPlan {
  plan::Plan plan;  ///< as make_plan makes it
  PlanReport report;
};

/// make_plan() with its report: about twice the time. Throws the same.
ExplainedPlan make_explained_plan(const topology::Topology& topology,
                                  const plan::Workload& workload, plan::CostModel& cost_model,
                                  const PlannerOptions& options);

/// The plan that is handed over, and what the search had of it.
struct FinishedPlan {
  Search::Scored scored;
  plan::Plan plan;
};

/// What a joint search over `bucket_sizes` found with `search`, which the report goes on using.
struct ReportInput {
  Search& search;
  JointResult& found;
  FinishedPlan& finished;  ///< by `finish`
  const BatchSpace& space;
  const plan::Workload& workload;
  plan::CostModel& cost_model;
  const PlannerOptions& options;
  const std::vector<Bytes>& bucket_sizes;
  std::function<plan::Plan(const JointResult& found)> finish;
};

/// Where the search was stopped, `found.best` and `finished` are a faster plan afterwards if the
/// report has one.
PlanReport make_report(const ReportInput& input);

/// A plan of the same search beside the one that it found.
struct Rival {
  std::string name;
  std::string what;
  Search::Scored scored;
};

/// Baselines, of the families that `search` has: NCCL-like ring and tree, DDP-like in FP32 and
/// FP16, parameter server. Absent are those that its options leave out; names of those that were
/// not simulated before the search was stopped are added to `not_reached`.
std::vector<Rival> usual_plans(Search& search, const plan::Workload& workload,
                               const plan::BatchPlan& batch, std::vector<std::string>& not_reached);

/// The plan's choices undone one by one; `best` is a plan of `search`. Names of those that were not
/// simulated before the search was stopped are added to `not_reached`.
std::vector<Rival> undo_choices(Search& search, const Search::Scored& best, const BatchSpace& space,
                                const PlannerOptions& options,
                                std::vector<std::string>& not_reached);

/// Holds the report against another plan than the one that it was made for, whose choices it does
/// not know: there are none then.
void hold_against(PlanReport& report, const plan::Plan& plan, const plan::Workload& workload);

}  // namespace rackrail::planner
