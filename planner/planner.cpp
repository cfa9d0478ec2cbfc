#include "planner/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "planner/batch/batch.hpp"
#include "planner/batch/batch_space.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/search/finished_plan.hpp"
#include "planner/search/joint_search.hpp"
#include "planner/search/plan_report.hpp"
#include "planner/search/search.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/buckets.hpp"

namespace rackrail::planner {

namespace {

void require_ranks(const topology::Topology& topology) {
  if (topology.rank_count() < 2) {
    throw ConfigError(
        ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                     counted(static_cast<std::int64_t>(topology.rank_count()), "rank"),
                     "at least two ranks to plan for"});
  }
}

/// Shows `report` what was found before the search is gone; it may be empty. Finished may be
/// another plan afterwards.
using Report = std::function<void(const ReportInput& input)>;

/// Local batches and how many of them a step has.
using Batch = std::pair<std::vector<std::int64_t>, std::int64_t>;

plan::Plan search_plan(const topology::Topology& topology, const plan::Workload& workload,
                       plan::CostModel& cost_model, const PlannerOptions& asked,
                       const Report& report) {
  PlannerOptions options = asked;
  bool is_reporting = false;
  bool is_near_bound = false;
  std::optional<QuickLimit> quick;
  if (asked.effort == SearchEffort::kQuick && !asked.exhaustive && !asked.enough_gap) {
    quick.emplace(topology.rank_count());
    options.work_left = [&] { return quick ? quick->left() : INT64_MAX; };
  }
  options.effort = quick ? SearchEffort::kQuick : SearchEffort::kThorough;
  bool is_quickly_done = false;
  bool is_told_to_stop = false;
  if (asked.stop || asked.enough_gap || quick) {
    options.stop = [&] {
      if (is_reporting) {
        return asked.stop_report && asked.stop_report();
      }
      is_quickly_done = is_quickly_done || (quick && quick->is_reached());
      is_told_to_stop = is_told_to_stop || (asked.stop && asked.stop());
      return is_near_bound || is_quickly_done || is_told_to_stop;
    };
  }
  constexpr double kSearchWithReport = 0.5;  // share of the work
  options.progress = part_of(asked.progress, 0, report ? kSearchWithReport : 1);
  require_ranks(topology);
  topology.require_connected();
  const Interruptible interruptible(cost_model, options.stop);
  const BatchSpace space(topology, workload, options);
  const auto progress = [&](double share, const std::string& what) {
    if (options.progress) {
      options.progress(share, what);
    }
  };
  progress(0, "schedules");
  Search search(topology, workload, cost_model, options);
  const bool has_one_batch = !is_batch_searched(options, workload, space);
  const bool ends_near_bound = asked.enough_gap && has_one_batch;
  if (ends_near_bound || (quick && has_one_batch)) {
    std::map<Batch, Duration> bounds;  // of the step, by batch
    search.on_simulated([&, bounds](const plan::Plan& plan, Duration step) mutable {
      const Batch batch{plan.batch.local_batch, plan.batch.accumulation};
      const auto [known, is_new] = bounds.try_emplace(batch);
      if (is_new) {
        known->second = search.lower_bound(plan.batch);
      }
      is_near_bound = is_near_bound ||
                      (ends_near_bound && step <= scaled(known->second, 1 + *asked.enough_gap));
      if (quick) {
        quick->found_gap(step / known->second - 1);
      }
    });
  }
  const std::vector<Bytes> sizes = options.bucket_size
                                       ? std::vector{*options.bucket_size}
                                       : bucket_sizes_to_try(workload, topology.rank_count());
  JointSearch joint(workload, options, space, search, sizes);
  std::optional<JointResult> plain;
  if (ends_near_bound) {
    plain =
        joint.near_enough_in_fp32(scaled(search.lower_bound(space.fixed()), 1 + *asked.enough_gap));
  }
  JointResult found = plain ? *std::move(plain) : joint.run();
  search.on_simulated({});
  found.is_near_bound = std::exchange(is_near_bound, false);  // what follows is not stopped by it
  found.was_quick =
      std::exchange(is_quickly_done, false) && !found.is_near_bound && !is_told_to_stop;
  const bool has_choice = !asked.codec.has_value() && !asked.schedule.has_value();
  if (found.was_quick && has_choice && topology.rank_count() < kVeryManyRanks) {
    quick.emplace(topology.rank_count(), WorkShare::kFinish);
    joint.finish_quickly(found);
  }
  quick.reset();
  is_quickly_done = false;
  found.was_stopped = found.was_stopped && !found.is_near_bound && !found.was_quick;
  progress(1, "checking");
  const auto finish = [&](const JointResult& result) {
    return finished_plan(result, search, topology, workload, cost_model, options);
  };
  FinishedPlan finished{found.best, finish(found)};
  if (report) {
    is_reporting = true;
    options.progress = part_of(asked.progress, kSearchWithReport, 1);
    report({search, found, finished, space, workload, cost_model, options, sizes, finish});
  }
  plan::Plan plan = std::move(finished.plan);
  plan.only_schedule = asked.schedule.value_or("");
  plan.only_bucket_size = asked.bucket_size.value_or(Bytes());
  if (asked.enough_gap && !ends_near_bound) {
    plan.notes.emplace_back(
        "--gap had no effect, as the batch is searched, too; --local-batch fixes it");
  }
  return plan;
}

}  // namespace

plan::Plan make_plan(const topology::Topology& topology, const plan::Workload& workload,
                     plan::CostModel& cost_model, const PlannerOptions& options) {
  return search_plan(topology, workload, cost_model, options, {});
}

ExplainedPlan make_explained_plan(const topology::Topology& topology,
                                  const plan::Workload& workload, plan::CostModel& cost_model,
                                  const PlannerOptions& options) {
  ExplainedPlan explained;
  explained.plan =
      search_plan(topology, workload, cost_model, options,
                  [&](const ReportInput& input) { explained.report = make_report(input); });
  return explained;
}

plan::Plan make_naive_plan(const topology::Topology& topology, const plan::Workload& workload,
                           plan::CostModel& cost_model, const PlannerOptions& options) {
  require_ranks(topology);
  plan::BatchPlan batch = same_everywhere(BatchSpace(topology, workload, options).fixed());
  const std::int64_t most = local_batches(topology, workload, options).back();
  for (std::int64_t& local : batch.local_batch) {
    local = std::min(local, most);
  }
  plan::Plan plan = naive_plan(topology, workload, cost_model, options, batch);
  predict_exactly(plan, workload, cost_model, options);
  return plan;
}

}  // namespace rackrail::planner
