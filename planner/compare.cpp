#include "planner/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "planner/schedule_family.hpp"
#include "planner/search.hpp"

namespace rackrail::planner {

namespace {

std::vector<Bytes> sizes_to_try(const plan::Workload& workload, const topology::Topology& topology,
                                const PlannerOptions& options) {
  if (options.bucket_size.has_value()) {
    return {*options.bucket_size};
  }
  constexpr std::size_t kRanksOfFewSizes = 32;  // steps take longer, and buckets matter less
  const bool many = topology.rank_count() >= kRanksOfFewSizes;
  std::vector<Bytes> sizes = {workload.gradient_bytes()};
  for (const Bytes size : {100_MiB, 25_MiB, 4_MiB}) {
    if (size < workload.gradient_bytes() && !(many && size < 25_MiB)) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

/// The best of `so_far` and of the plans that the filter allows. None when the search was stopped
/// before one of these was simulated: what was not looked at is not what `so_far` takes.
std::optional<LimitedStep> fastest(Search& search, const std::vector<Bytes>& sizes,
                                   const CandidateFilter& filter, const plan::BatchPlan& batch,
                                   std::optional<LimitedStep> so_far,
                                   const std::function<bool()>& stop) {
  bool is_looked_at = false;
  for (const Bytes size : sizes) {
    if (stop && stop()) {
      return is_looked_at ? so_far : std::nullopt;
    }
    auto draft = search.draft({"compared", size, filter}, batch);
    const Duration limit = so_far.has_value() ? so_far->step_time : CandidateSet::kNoLimit;
    if (draft.has_value() && search.score_below(draft->scored, limit)) {
      so_far = LimitedStep{draft->scored.estimate.step_time, size};
    }
    is_looked_at = is_looked_at || !(stop && stop());
  }
  return is_looked_at ? so_far : std::nullopt;
}

/// All steps of one family, which must not refuse.
void compare(const topology::Topology& topology, const plan::Workload& workload,
             plan::CostModel& cost_model, const PlannerOptions& options,
             const plan::BatchPlan& batch, FamilySteps& steps) {
  const std::vector<Bytes> sizes = sizes_to_try(workload, topology, options);
  Search search(topology, workload, cost_model, options);
  const auto up_to = [](plan::CodecKind kind) {
    return [kind](const Candidate& candidate) { return candidate.strongest.kind <= kind; };
  };
  const auto& candidates = search.candidates().all();
  steps.fp32 =
      fastest(search, sizes, up_to(plan::CodecKind::kNone), batch, std::nullopt, options.stop);
  if (std::any_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
        return candidate.strongest.kind == plan::CodecKind::kFp16;
      })) {
    steps.fp16 =
        fastest(search, sizes, up_to(plan::CodecKind::kFp16), batch, steps.fp32, options.stop);
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
    steps.any = fastest(search, sizes, any_candidate, batch, steps.any, options.stop);
  }
}

}  // namespace

std::vector<FamilySteps> compare_families(const topology::Topology& topology,
                                          const plan::Workload& workload,
                                          plan::CostModel& cost_model, PlannerOptions options,
                                          const plan::BatchPlan& batch) {
  if (topology.rank_count() < 2) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   fmt::format("{} rank(s)", topology.rank_count()),
                                   "at least two ranks to compare schedules for"});
  }
  topology.require_connected();
  options.codec.reset();
  const Interruptible interruptible(cost_model, options.stop);
  const auto families = schedule_families();
  std::vector<FamilySteps> all;
  for (const auto& family : families) {
    FamilySteps& steps = all.emplace_back();
    steps.family = family->name();
    if (options.progress) {
      options.progress(static_cast<double>(all.size() - 1) / static_cast<double>(families.size()),
                       steps.family);
    }
    steps.refusal = graph_refusal(*family, topology, {});
    if (steps.refusal.has_value()) {
      continue;
    }
    steps.was_stopped = options.stop && options.stop();
    if (!steps.was_stopped) {
      options.schedule = steps.family;
      compare(topology, workload, cost_model, options, batch, steps);
      steps.was_stopped = options.stop && options.stop();
    }
  }
  return all;
}

}  // namespace rackrail::planner
