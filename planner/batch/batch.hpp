// Batch sizes that fit, and what their samples are worth; how they are chosen is in batch/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/options.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Local batches that the options and every rank's memory allow, ascending: the one that was asked
/// for; the profiled one; with a noise scale also its powers of two. Throws ConfigError when even
/// the smallest does not fit into memory.
std::vector<std::int64_t> local_batches(const topology::Topology& topology,
                                        const plan::Workload& workload,
                                        const PlannerOptions& options);

/// No batch is looked at that is more times the profiled one.
inline constexpr std::int64_t kLargestFactor = 64;

/// Samples that a sample of batch B is worth at the base batch: E(B) = (N + B₀)/(N + B) for noise
/// scale N (McCandlish et al., arXiv 1812.06162); 1 without a noise scale.
double statistical_efficiency(const plan::Workload& workload, std::int64_t global_batch);

/// The same number of samples on every rank, as a baseline has it, whether or not they fit into the
/// smallest memory.
plan::BatchPlan same_everywhere(const plan::BatchPlan& batch);
bool is_same_everywhere(const plan::BatchPlan& batch);

/// "32 samples on every rank", "16 to 56 samples on a rank"; of each pass, if there are several.
std::string local_batch_text(const plan::BatchPlan& batch);

}  // namespace rackrail::planner
