#include "planner/batch/goodput.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/batch/batch.hpp"

namespace rackrail::planner {

namespace {

/// Step times that were asked for once, by global batch.
class Explorer {
 public:
  Explorer(const plan::Workload& workload, const BatchSpace& space, const StepTime& step_time)
      : workload_(workload), space_(space), step_time_(step_time) {}

  /// Global batch and goodput of about `samples`.
  std::pair<std::int64_t, double> at(double samples) {
    plan::BatchPlan batch = space_.divide(std::llround(samples));
    const std::int64_t global = batch.global_batch();
    auto it = points_.find(global);
    if (it == points_.end()) {
      it = points_.emplace(global, rate(workload_, step_time_, std::move(batch))).first;
    }
    return {global, it->second.goodput()};
  }

  /// Multiplies by `factor` from the best point on until it has become worse twice in a row, or
  /// nothing changes.
  void climb(double factor) {
    const BatchPoint& best_point = best();
    double samples = static_cast<double>(best_point.batch.global_batch());
    double most = best_point.goodput();
    std::int64_t last = best_point.batch.global_batch();
    for (int worse = 0; worse < 2;) {
      samples *= factor;
      const auto [global, goodput] = at(samples);
      if (global == last) {
        return;
      }
      last = global;
      worse = goodput > most ? 0 : worse + 1;
      most = std::max(most, goodput);
    }
  }

  const BatchPoint& best() const {
    const auto by_goodput = [](const auto& a, const auto& b) {
      return a.second.goodput() < b.second.goodput();
    };
    return std::max_element(points_.begin(), points_.end(), by_goodput)->second;
  }

  std::vector<BatchPoint> tried() const {
    std::vector<BatchPoint> all;
    for (const auto& [global, point] : points_) {
      all.push_back(point);
    }
    return all;
  }

 private:
  const plan::Workload& workload_;
  const BatchSpace& space_;
  const StepTime& step_time_;
  std::map<std::int64_t, BatchPoint> points_;
};

std::string passes_text(const plan::BatchPlan& batch) {
  return batch.accumulation > 1 ? fmt::format(" in {} passes", batch.accumulation) : "";
}

}  // namespace

BatchPoint rate(const plan::Workload& workload, const StepTime& step_time, plan::BatchPlan batch) {
  BatchPoint point;
  point.step_time = step_time(batch);
  const std::int64_t global = batch.global_batch();
  point.throughput = static_cast<double>(global) / point.step_time.seconds();
  point.efficiency = statistical_efficiency(workload, global);
  point.batch = std::move(batch);
  return point;
}

GoodputSearch search_goodput(const plan::Workload& workload, const BatchSpace& space,
                             const StepTime& step_time) {
  if (!workload.noise_scale) {
    throw ConfigError(ErrorContext{"", fmt::format("workload '{}'", workload.name),
                                   "no noise scale", "one, to know what samples are worth"});
  }
  Explorer explorer(workload, space, step_time);
  explorer.at(static_cast<double>(space.fixed().global_batch()));
  explorer.climb(2);
  explorer.climb(0.5);
  for (std::int64_t passes = 1; passes * space.room() <= space.largest() && passes <= 8;
       passes *= 2) {
    explorer.at(static_cast<double>(passes * space.room()));
  }
  for (const double exponent : {0.5, 0.25, 0.15}) {
    const auto peak = static_cast<double>(explorer.best().batch.global_batch());
    explorer.at(peak * std::exp2(exponent));
    explorer.at(peak * std::exp2(-exponent));
  }
  return {explorer.best(), explorer.tried()};
}

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
