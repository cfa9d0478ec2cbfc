// What a step takes at least, however its transfers are interleaved: a plan whose bound is above
// the step of another one need not be simulated.
//
// Model. Nothing of bucket j is sent before its gradients are ready on some rank, r_j. A link
// carries the bytes of all buckets over it one after the other, and a rank optimises when all is
// there. So for every bucket j and every link l
//   step ≥ min_{i ≥ j} r_i + Σ_{i ≥ j} seconds_l(i) + optimiser,
// where seconds_l(i) are what the encoded bytes of bucket i occupy link l (plan::link_loads), in
// all less what a burst of the link passes at once; and
//   step ≥ r_j + AlphaBeta::alone_at_least(bucket j) + optimiser,  step ≥ backward + optimiser,
// with ready times and optimiser of the fastest rank, the last term of the slowest one. Codecs,
// additions and message overheads are left out. Against the simulator:
// tests/integration/planner/pruning_test.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "plan/workload.hpp"
#include "planner/tuning/buckets.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

class StepBound {
 public:
  /// Keeps references to all three.
  StepBound(std::span<const Candidate> candidates, const topology::Topology& topology,
            const plan::Workload& workload);

  /// Of a step in which groups[i] is moved by choices[i]. O(buckets · links).
  Duration at_least(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                    const plan::BatchPlan& batch) const;
  /// Of a step in which each group is moved by one of these candidates, whichever:
  /// O(buckets · candidates · links).
  Duration at_least(const std::vector<TensorGroup>& groups,
                    const std::vector<std::size_t>& candidates, const plan::BatchPlan& batch) const;
  /// By group, what is left for moving it in a step that takes less than this: no more than zero
  /// where there is nothing.
  std::vector<Duration> left(const std::vector<TensorGroup>& groups, const plan::BatchPlan& batch,
                             Duration step) const;

 private:
  struct GroupLoad {
    Duration alone;  ///< of the group's collective, at least
    std::vector<std::pair<LinkId, double>> seconds;
  };
  struct Compute {
    std::vector<Duration> ready;  ///< by tensor, on the rank that has it first
    Duration optimizer;           ///< of the fastest rank
    Duration end;                 ///< of the slowest rank, with its optimiser
  };
  Compute compute(const plan::BatchPlan& batch) const;
  static Duration ready(const Compute& least, const TensorGroup& group);
  Duration at_least(const std::vector<TensorGroup>& groups, const plan::BatchPlan& batch,
                    const std::function<GroupLoad(std::size_t group)>& load_of) const;

  std::span<const Candidate> candidates_;
  const topology::Topology& topology_;
  const plan::Workload& workload_;
};

}  // namespace rackrail::planner
