#include "planner/batch/decide_batch.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/parse_units.hpp"

namespace rackrail::planner {

namespace {

std::string passes_text(const plan::BatchPlan& batch) {
  return batch.accumulation > 1 ? fmt::format(" in {} passes", batch.accumulation) : "";
}

}  // namespace

BatchDecision decide_batch(const plan::Workload& workload, const BatchSpace& space,
                           BatchPolicy policy, const StepTime& step_time) {
  BatchDecision decision;
  if (space.is_settled()) {
    decision.batch = space.fixed();
    return decision;
  }
  if (!workload.noise_scale) {
    if (policy == BatchPolicy::kLatency) {
      decision.batch = space.by_latency();
      decision.notes.push_back(fmt::format(
          "batch {} by latency; what it gains is unknown, as the workload has no noise scale",
          decision.batch.global_batch()));
    } else {
      decision.batch = space.fixed();
    }
  } else {
    const GoodputSearch search = search_goodput(workload, space, step_time);
    const std::pair<BatchPolicy, BatchPoint> points[] = {
        {BatchPolicy::kGoodput, search.best},
        {BatchPolicy::kLatency, rate(workload, step_time, space.by_latency())},
        {BatchPolicy::kFixed, rate(workload, step_time, space.fixed())}};
    for (const auto& [kind, point] : points) {
      if (kind == policy) {
        decision.batch = point.batch;
      }
      decision.notes.push_back(fmt::format(
          "batch by {}{}: {}{}, {} a step, {:.1f} samples/s, each worth {:.3f}: {:.1f} useful "
          "samples/s",
          name_of(kind), kind == policy ? " (chosen)" : "", point.batch.global_batch(),
          passes_text(point.batch), to_string(point.step_time), point.throughput, point.efficiency,
          point.goodput()));
    }
  }
  if (auto differing = space.describe(decision.batch)) {
    decision.notes.push_back(*std::move(differing));
  }
  return decision;
}

}  // namespace rackrail::planner
