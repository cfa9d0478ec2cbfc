#include "planner/batch/batch_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/batch/batch.hpp"
#include "planner/batch/learning_rate.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

BatchSpace::BatchSpace(const topology::Topology& topology, const plan::Workload& workload,
                       const PlannerOptions& options)
    : topology_(topology),
      workload_(workload),
      options_(options),
      speeds_(device_speeds(topology, workload)) {
  local_batches(topology, workload, options);  // for what it refuses
  for (const DeviceSpeed& speed : speeds_) {
    room_ += speed.largest;
    is_mixed_ = is_mixed_ || speed.fixed != speeds_[0].fixed ||
                speed.per_sample != speeds_[0].per_sample || speed.largest != speeds_[0].largest;
  }
}

std::int64_t BatchSpace::smallest() const { return static_cast<std::int64_t>(speeds_.size()); }

std::int64_t BatchSpace::largest() const {
  return options_.max_global_batch.value_or(workload_.profiled_batch * kLargestFactor * smallest());
}

bool BatchSpace::is_settled() const { return options_.local_batch.has_value(); }

std::vector<std::int64_t> BatchSpace::divide_pass(std::int64_t samples, std::int64_t passes) const {
  const std::int64_t ranks = smallest();
  if (!is_mixed_) {
    return std::vector<std::int64_t>(speeds_.size(), samples / ranks);
  }
  auto divided =
      equal_finish(passes == 1 ? speeds_ : device_speeds(topology_, workload_, passes), samples);
  if (!divided) {
    throw PlanError(ErrorContext{"", "batch", fmt::format("{} samples a pass", samples),
                                 fmt::format("from {} to {}", ranks, room_)});
  }
  return *std::move(divided);
}

plan::BatchPlan BatchSpace::with_learning_rate(std::vector<std::int64_t> local,
                                               std::int64_t passes) const {
  plan::BatchPlan batch;
  batch.local_batch = std::move(local);
  batch.accumulation = passes;
  set_learning_rate(batch, workload_, options_.learning_rate_rule);
  return batch;
}

plan::BatchPlan BatchSpace::divide(std::int64_t global) const {
  const std::int64_t ranks = smallest();
  const std::int64_t wanted = std::clamp(global, ranks, std::max(ranks, largest()));
  const std::int64_t passes = (wanted + room_ - 1) / room_;
  // Equal devices have equal batches, so their sum is a multiple of their number.
  const std::int64_t unit = is_mixed_ ? 1 : ranks;
  const std::int64_t samples =
      std::clamp(wanted / passes / unit * unit, ranks, room_ / unit * unit);
  return with_learning_rate(divide_pass(samples, passes), passes);
}

plan::BatchPlan BatchSpace::fixed() const {
  if (is_settled()) {
    return with_learning_rate(std::vector<std::int64_t>(speeds_.size(), *options_.local_batch), 1);
  }
  return divide(std::min({workload_.profiled_batch * smallest(), room_, largest()}));
}

plan::BatchPlan BatchSpace::even(const plan::BatchPlan& batch) const {
  if (is_same_everywhere(batch)) {
    return batch;
  }
  std::vector<std::int64_t> local = same_everywhere(batch).local_batch;
  for (const DeviceSpeed& speed : speeds_) {
    local[0] = std::min(local[0], speed.largest);
  }
  local.assign(speeds_.size(), local[0]);
  return with_learning_rate(std::move(local), batch.accumulation);
}

plan::BatchPlan BatchSpace::by_latency() const {
  if (is_settled()) {
    return fixed();
  }
  topology::Router router(topology_);
  std::optional<Duration> base;
  Duration current;
  for (std::size_t r = 1; r < topology_.rank_count(); ++r) {
    const Duration latency = topology::route_latency(topology_, router.route(Rank(0), Rank(r)));
    base = std::min(base.value_or(latency), latency);
    current = std::max(current, latency);
  }
  const std::int64_t most = std::min(room_, largest());
  if (!base || *base <= Duration()) {
    return divide(most);  // no latency that a rule could go by
  }
  return divide(batch_by_latency(most, *base, current));
}

std::optional<std::string> BatchSpace::describe(const plan::BatchPlan& batch) const {
  const auto [least, most] =
      std::minmax_element(batch.local_batch.begin(), batch.local_batch.end());
  if (!is_mixed_ || *least == *most) {
    return std::nullopt;
  }
  const std::vector<DeviceSpeed> speeds = device_speeds(topology_, workload_, batch.accumulation);
  const std::int64_t passes = batch.accumulation;
  const std::int64_t same = std::max<std::int64_t>(1, batch.global_batch() / passes / smallest());
  const FinishTimes divided = finish_times(speeds, batch.local_batch);
  const FinishTimes uniform = finish_times(speeds, std::vector<std::int64_t>(speeds.size(), same));
  return fmt::format(
      "devices differ: {} to {} samples on a rank, so that a pass takes each at most {} and none "
      "less "
      "than {:.1f} % below that; with {} on each the slowest would take {} ({:+.0f} %)",
      *least, *most, to_string(divided.longest), divided.spread * 100, same,
      to_string(uniform.longest), (uniform.longest / divided.longest - 1) * 100);
}

std::int64_t batch_by_latency(std::int64_t max_batch, Duration base, Duration current) {
  if (base <= Duration() || current <= Duration()) {
    throw ConfigError(
        ErrorContext{"", "batch by latency",
                     fmt::format("base {}, current {}", to_string(base), to_string(current)),
                     "positive latencies"});
  }
  return std::clamp<std::int64_t>(std::llround(static_cast<double>(max_batch) * (base / current)),
                                  1, max_batch);
}

}  // namespace rackrail::planner
