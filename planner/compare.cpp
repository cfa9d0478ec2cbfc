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
  constexpr std::size_t kManyRanks = 32;  // a simulated step takes longer, and buckets matter less
  const bool many = topology.rank_count() >= kManyRanks;
  std::vector<Bytes> sizes = {workload.gradient_bytes()};
  for (const Bytes size : {100_MiB, 25_MiB, 4_MiB}) {
    if (size < workload.gradient_bytes() && !(many && size < 25_MiB)) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

/// The best of `so_far` and of the plans that the filter allows.
std::optional<LimitedStep> fastest(Search& search, const std::vector<Bytes>& sizes,
                                   const CandidateFilter& filter, const plan::BatchPlan& batch,
                                   std::optional<LimitedStep> so_far) {
  for (const Bytes size : sizes) {
    const auto scored = search.evaluate({"compared", size, filter}, batch);
    if (scored.has_value() &&
        (!so_far.has_value() || scored->estimate.step_time < so_far->step_time)) {
      so_far = LimitedStep{scored->estimate.step_time, size};
    }
  }
  return so_far;
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
  const std::vector<Bytes> sizes = sizes_to_try(workload, topology, options);
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
    options.schedule = steps.family;
    Search search(topology, workload, cost_model, options);
    const auto up_to = [](plan::CodecKind kind) {
      return [kind](const Candidate& candidate) { return candidate.strongest.kind <= kind; };
    };
    steps.fp32 = fastest(search, sizes, up_to(plan::CodecKind::kNone), batch, std::nullopt);
    const auto& candidates = search.candidates().all();
    if (std::any_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
          return candidate.strongest.kind == plan::CodecKind::kFp16;
        })) {
      steps.fp16 = fastest(search, sizes, up_to(plan::CodecKind::kFp16), batch, steps.fp32);
    } else {
      const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
      steps.fp16_refusal =
          family->refusal(topology, {fp16, fp16}).value_or("FP16 is beyond the error budget");
    }
    const bool goes_beyond =
        std::any_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
          return candidate.strongest.kind > plan::CodecKind::kFp16;
        });
    steps.any = steps.fp16.has_value() ? steps.fp16 : steps.fp32;
    if (goes_beyond) {
      steps.any = fastest(
          search, sizes, [](const Candidate&) { return true; }, batch, steps.any);
    }
  }
  return all;
}

}  // namespace rackrail::planner
