#include "planner/batch/batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/noise_scale.hpp"

namespace rackrail::planner {

namespace {

std::int64_t largest_by_memory(const topology::Topology& topology, const plan::Workload& workload) {
  std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  if (!workload.memory_per_sample || workload.memory_per_sample->count() <= 0) {
    return largest;
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const auto& memory = topology.node(topology.node_of(Rank(r))).memory;
    if (memory.has_value()) {
      const Bytes free = *memory - workload.memory_fixed.value_or(Bytes());
      largest = std::min(
          largest, std::max<std::int64_t>(0, free.count() / workload.memory_per_sample->count()));
    }
  }
  return largest;
}

}  // namespace

std::vector<std::int64_t> local_batches(const topology::Topology& topology,
                                        const plan::Workload& workload,
                                        const PlannerOptions& options) {
  const std::int64_t by_memory = largest_by_memory(topology, workload);
  const auto ranks = static_cast<std::int64_t>(topology.rank_count());
  std::int64_t limit = by_memory;
  if (options.max_global_batch.has_value()) {
    limit = std::min(limit, *options.max_global_batch / ranks);
  }
  if (options.local_batch.has_value()) {
    if (*options.local_batch > by_memory) {
      throw ConfigError(ErrorContext{
          "<command line>", "local batch", std::to_string(*options.local_batch),
          fmt::format("at most {}, which is what fits into memory ({} fixed, {} per sample)",
                      by_memory, to_string(workload.memory_fixed.value_or(Bytes())),
                      to_string(*workload.memory_per_sample))});
    }
    if (*options.local_batch > limit) {
      throw ConfigError(ErrorContext{
          "<command line>", "local batch", std::to_string(*options.local_batch),
          fmt::format("at most {}, which is what the largest global batch of {} leaves each of {} "
                      "ranks",
                      limit, *options.max_global_batch, ranks)});
    }
    return {*options.local_batch};
  }
  if (limit < 1) {
    throw ConfigError(
        ErrorContext{"", "batch size",
                     fmt::format("room for {} samples per rank", std::max<std::int64_t>(0, limit)),
                     "memory and a largest global batch that allow at least one"});
  }
  std::set<std::int64_t> batches = {std::min(workload.profiled_batch, limit)};
  if (workload.noise_scale.has_value()) {
    for (std::int64_t b = 1; b <= workload.profiled_batch * kLargestFactor && b <= limit; b *= 2) {
      batches.insert(b);
    }
  }
  return {batches.begin(), batches.end()};
}

double statistical_efficiency(const plan::Workload& workload, std::int64_t global_batch) {
  if (!workload.noise_scale.has_value()) {
    return 1;
  }
  const auto base = static_cast<double>(workload.base_batch);
  const auto batch = static_cast<double>(global_batch);
  return workload.noise_curve.empty()
             ? plan::statistical_efficiency(*workload.noise_scale, base, batch)
             : plan::statistical_efficiency(workload.noise_curve, base, batch);
}

plan::BatchPlan same_everywhere(const plan::BatchPlan& batch) {
  plan::BatchPlan same = batch;
  const auto ranks = static_cast<std::int64_t>(batch.local_batch.size());
  const std::int64_t each =
      std::max<std::int64_t>(1, batch.global_batch() / batch.accumulation / ranks);
  same.local_batch.assign(batch.local_batch.size(), each);
  return same;
}

bool is_same_everywhere(const plan::BatchPlan& batch) {
  return std::ranges::adjacent_find(batch.local_batch, std::not_equal_to<>()) ==
         batch.local_batch.end();
}

std::string local_batch_text(const plan::BatchPlan& batch) {
  const auto [least, most] = std::ranges::minmax(batch.local_batch);
  const char* pass = batch.accumulation > 1 ? " a pass" : "";
  return least == most ? fmt::format("{} samples on every rank{}", least, pass)
                       : fmt::format("{} to {} samples on a rank{}", least, most, pass);
}

}  // namespace rackrail::planner
