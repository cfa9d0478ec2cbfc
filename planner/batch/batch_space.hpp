// The batches that a cluster's memory and the options allow, and how each is divided over the
// ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/batch/equal_finish.hpp"
#include "planner/request/options.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The references must outlive it.
class BatchSpace {
 public:
  /// Throws ConfigError when the smallest batch does not fit, or one that was asked for.
  BatchSpace(const topology::Topology& topology, const plan::Workload& workload,
             const PlannerOptions& options);

  /// About `global` samples a step in as few passes as memory allows: a pass more costs its fixed
  /// time again and hides no gradient. Every rank of a mixed cluster gets the batch with which all
  /// finish a pass together; a batch per rank that was asked for stays the same everywhere. Sizes
  /// are clamped to the limits and rounded to whole samples per rank on average, so the result's
  /// global_batch() may differ a little.
  plan::BatchPlan divide(std::int64_t global) const;

  /// What was asked for, else the profiled batch on average, or less where memory has no room.
  plan::BatchPlan fixed() const;
  /// The same number of samples on every rank, as a baseline has it: on average those of `batch`,
  /// or less where the smallest memory has no room.
  plan::BatchPlan even(const plan::BatchPlan& batch) const;
  /// Largest batch · base latency / current latency. The largest fits into memory in one pass; base
  /// and current are the smallest and the largest latency of a route from the first rank.
  plan::BatchPlan by_latency() const;

  /// One sample per rank, and what the options allow or 64 times the profiled batch.
  std::int64_t smallest() const;
  std::int64_t largest() const;
  /// Samples that all memories hold in one pass.
  std::int64_t room() const { return room_; }
  /// The batch per rank was asked for, so there is nothing to search.
  bool is_settled() const;

  /// How the ranks' batches differ and what it gains, for the plan's notes; none when all have one.
  std::optional<std::string> describe(const plan::BatchPlan& batch) const;

 private:
  plan::BatchPlan with_learning_rate(std::vector<std::int64_t> local, std::int64_t passes) const;
  std::vector<std::int64_t> divide_pass(std::int64_t samples, std::int64_t passes) const;

  const topology::Topology& topology_;
  const plan::Workload& workload_;
  const PlannerOptions& options_;
  std::vector<DeviceSpeed> speeds_;  // of a step of one pass
  bool is_mixed_ = false;
  std::int64_t room_ = 0;
};

/// The rule of thumb: max_batch · base / current, at least 1 and at most max_batch. Latencies must
/// be positive; throws ConfigError otherwise.
std::int64_t batch_by_latency(std::int64_t max_batch, Duration base, Duration current);

}  // namespace rackrail::planner
