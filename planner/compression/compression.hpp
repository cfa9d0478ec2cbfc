// The compression search's problem for one division into buckets, and its answers as choices.
//
// Options of a bucket: for each pair of codecs (inside a group of ranks, across groups) that the
// budget allows, the schedule and slice that are fastest alone. So an option says what is encoded
// and where: nothing, only what crosses the slow tier, or everywhere with the same codec or a
// lighter one inside. Protected buckets have no option beyond FP16.
#pragma once

#include <string>
#include <vector>

#include "plan/workload.hpp"
#include "planner/compression/compression_loads.hpp"
#include "planner/compression/compression_timeline.hpp"
#include "planner/tuning/buckets.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

/// What a bucket may be moved by, and what the timeline knows about it.
struct CompressionTable {
  TimelineProblem problem;
  std::vector<std::vector<Choice>> choices;  ///< by bucket and option
  /// The same pair of codecs wherever a bucket has it; elsewhere the fastest option.
  struct Uniform {
    std::string name;              ///< "fp32", "fp16", "fp32 inside, int8 across"
    bool hurts_protected = false;  ///< beyond FP16 somewhere
    Assignment assignment;
    /// Every bucket has it but those of protected tensors, where there are others.
    bool is_everywhere = true;
  };
  std::vector<Uniform> uniform;

  std::vector<Assignment> starts() const;
  std::vector<Choice> chosen(const Assignment& assignment) const;
};

/// Times collectives by the cost model where the candidate set has not yet. Empty `problem.buckets`
/// when some group has no option that `filter` accepts, or the search was stopped meanwhile. Harm
/// is elements · Candidate::error².
CompressionTable compression_table(const std::vector<TensorGroup>& groups,
                                   const plan::Workload& workload,
                                   const topology::Topology& topology, const plan::BatchPlan& batch,
                                   CandidateSet& candidates, const ScheduleLoads& loads,
                                   const CandidateFilter& filter = any_candidate);

/// What the timeline says the step takes with this choice for each group.
Duration expected_step(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                       const plan::Workload& workload, const topology::Topology& topology,
                       const plan::BatchPlan& batch, const ScheduleLoads& loads);

}  // namespace rackrail::planner
