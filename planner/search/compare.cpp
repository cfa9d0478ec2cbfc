#include "planner/search/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/batch/batch.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/search/finished_plan.hpp"
#include "planner/search/plan_report.hpp"
#include "planner/search/search.hpp"

namespace rackrail::planner {

namespace {

std::vector<Bytes> sizes_to_try(const plan::Workload& workload, const topology::Topology& topology,
                                const PlannerOptions& options) {
  if (options.bucket_size.has_value()) {
    return {*options.bucket_size};
  }
  const bool many = topology.rank_count() >= kRanksOfOneSlice;
  std::vector<Bytes> sizes = {workload.gradient_bytes()};
  for (const Bytes size : {100_MiB, 25_MiB, 4_MiB}) {
    if (size < workload.gradient_bytes() && !(many && size < 25_MiB)) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

/// The fastest plan below a limit that the options allow.
struct Kept {
  CandidateFilter may_use;  ///< what they leave
  Duration faster_than;
  std::optional<Search::Scored> scored{};

  void offer(const Search::Scored& plan, const Search& search) {
    if (plan.estimate.step_time < faster_than &&
        std::ranges::all_of(plan.chosen, [&](std::size_t candidate) {
          return may_use(search.candidates().all()[candidate]);
        })) {
      faster_than = plan.estimate.step_time;
      scored = plan;
    }
  }
};

/// One family's search and how far it goes.
struct FamilySearch {
  Search& search;
  std::vector<Bytes> sizes;
  const plan::BatchPlan& batch;
  std::function<bool()> stop;
  Kept kept;
};

/// The best of `so_far` and of the plans that the filter allows. None when the search was stopped
/// before one of these was simulated: what was not looked at is not what `so_far` takes.
std::optional<LimitedStep> fastest(FamilySearch& of, const CandidateFilter& filter,
                                   std::optional<LimitedStep> so_far) {
  const auto is_stopped = [&] { return of.stop && of.stop(); };
  bool is_looked_at = false;
  for (const Bytes size : of.sizes) {
    if (is_stopped()) {
      return is_looked_at ? so_far : std::nullopt;
    }
    auto draft = of.search.draft({"compared", size, filter}, of.batch);
    const Duration limit = so_far.has_value() ? so_far->step_time : CandidateSet::kNoLimit;
    if (draft.has_value() && of.search.score_below(draft->scored, limit)) {
      so_far = LimitedStep{draft->scored.estimate.step_time, size};
      of.kept.offer(draft->scored, of.search);
    }
    is_looked_at = is_looked_at || !is_stopped();
  }
  return is_looked_at ? so_far : std::nullopt;
}

/// All steps of one family, which must not refuse.
void compare(FamilySearch& of, const topology::Topology& topology, FamilySteps& steps) {
  const auto up_to = [](plan::CodecKind kind) {
    return [kind](const Candidate& candidate) { return candidate.strongest.kind <= kind; };
  };
  const auto& candidates = of.search.candidates().all();
  steps.fp32 = fastest(of, up_to(plan::CodecKind::kNone), std::nullopt);
  if (std::any_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
        return candidate.strongest.kind == plan::CodecKind::kFp16;
      })) {
    steps.fp16 = fastest(of, up_to(plan::CodecKind::kFp16), steps.fp32);
  } else {
    const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
    steps.fp16_refusal = schedule_family(steps.family)
                             .refusal(topology, {fp16, fp16})
                             .value_or("FP16 is beyond the error budget");
  }
  const bool goes_beyond = std::any_of(
      candidates.begin(), candidates.end(),
      [](const Candidate& candidate) { return candidate.strongest.kind > plan::CodecKind::kFp16; });
  steps.any = steps.fp16.has_value() ? steps.fp16 : steps.fp32;
  if (goes_beyond) {
    steps.any = fastest(of, any_candidate, steps.any);
  }
}

/// What runs without a planner by the family of this search.
void add_usual(std::vector<UsualStep>& usual, Search& search, const plan::Workload& workload,
               const plan::BatchPlan& batch) {
  std::vector<std::string> not_reached;
  for (Rival& rival : usual_plans(search, workload, batch, not_reached)) {
    usual.push_back(
        {std::move(rival.name), std::move(rival.what), rival.scored.estimate.step_time});
  }
}

/// What plans may use where the caller asked for a schedule or a codec. One that was asked for is
/// also used on what is protected otherwise, which no plan here is: they have none of it then.
CandidateFilter left_by(const PlannerOptions& asked) {
  return [schedule = asked.schedule, codec = asked.codec](const Candidate& candidate) {
    return (!schedule.has_value() || candidate.family == *schedule) &&
           (!codec.has_value() || (!codec->is_lossy() && is_fp32(candidate)));
  };
}

}  // namespace

FamilyComparison compare_families(const topology::Topology& topology,
                                  const plan::Workload& workload, plan::CostModel& cost_model,
                                  PlannerOptions options, const plan::BatchPlan& batch,
                                  Duration faster_than) {
  if (topology.rank_count() < 2) {
    throw ConfigError(
        ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                     counted(static_cast<std::int64_t>(topology.rank_count()), "rank"),
                     "at least two ranks to compare schedules for"});
  }
  topology.require_connected();
  const CandidateFilter may_use = left_by(options);
  options.codec.reset();
  options.compare_baselines = false;
  const Interruptible interruptible(cost_model, options.stop);
  const std::vector<Bytes> sizes = sizes_to_try(workload, topology, options);
  const auto families = schedule_families();
  FamilyComparison comparison;
  for (const auto& family : families) {
    FamilySteps& steps = comparison.families.emplace_back();
    steps.family = family->name();
    if (options.progress) {
      options.progress(static_cast<double>(comparison.families.size() - 1) /
                           static_cast<double>(families.size()),
                       steps.family);
    }
    steps.refusal = graph_refusal(*family, topology, {});
    if (steps.refusal.has_value()) {
      continue;
    }
    steps.was_stopped = options.stop && options.stop();
    if (steps.was_stopped) {
      continue;
    }
    options.schedule = steps.family;
    Search search(topology, workload, cost_model, options);
    FamilySearch of{search, sizes, batch, options.stop, {may_use, faster_than}};
    compare(of, topology, steps);
    add_usual(comparison.usual, search, workload, same_everywhere(batch));
    if (of.kept.scored.has_value()) {
      JointResult found;
      found.best = *std::move(of.kept.scored);
      found.was_stopped = options.stop && options.stop();
      found.notes = {fmt::format("found when schedules were compared: {} alone", steps.family)};
      const Duration estimated = found.best.estimate.step_time;
      plan::Plan plan = finished_plan(found, search, topology, workload, cost_model, options);
      for (std::optional<LimitedStep>* row : {&steps.fp32, &steps.fp16, &steps.any}) {
        if (row->has_value() && (*row)->step_time == estimated) {
          (*row)->step_time = plan.prediction.step_time;  // of very many ranks, the exact one
        }
      }
      if (plan.prediction.step_time < faster_than) {
        faster_than = plan.prediction.step_time;
        comparison.faster = std::move(plan);
      }
    }
    steps.was_stopped = options.stop && options.stop();
  }
  return comparison;
}

}  // namespace rackrail::planner
