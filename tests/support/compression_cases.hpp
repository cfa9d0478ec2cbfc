// Small cases of the choice of codecs whose every answer can be simulated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>

#include "planner/compression/compression.hpp"
#include "planner/compression/compression_search.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::test {

/// A shipped cluster (or a100-4x8), with links below 60 GB/s (the network between hosts) slower by
/// a factor.
topology::Topology slower_cluster(const std::string& name, double slower);

enum class Order : std::uint8_t {
  kReady,   ///< as the timeline has it
  kNeeded,  ///< what the next step needs first is sent first, as in plans
};

/// One division into buckets on one cluster, ready to be evaluated by the timeline and by the
/// simulator.
class CompressionCase {
 public:
  CompressionCase(topology::Topology topology, plan::Workload workload, Bytes bucket_size,
                  double error_budget = planner::PlannerOptions{}.error_budget);
  /// Two racks of two hosts with a network from twice as fast to ten times slower than the shipped
  /// one, and a model of so many layers at random, each a bucket.
  CompressionCase(std::uint64_t seed, int layers,
                  double error_budget = planner::PlannerOptions{}.error_budget);
  CompressionCase(const CompressionCase&) = delete;  // parts refer to one another
  CompressionCase& operator=(const CompressionCase&) = delete;
  CompressionCase(CompressionCase&&) = delete;
  CompressionCase& operator=(CompressionCase&&) = delete;
  ~CompressionCase() = default;

  const planner::CompressionTable& table() const { return table_; }
  const planner::Timeline& timeline() const { return timeline_; }
  /// The step where buckets go in this order.
  Duration simulated(const planner::Assignment& assignment, Order order = Order::kNeeded);
  /// The step of the plan that the planner makes for these buckets and this batch, with this codec
  /// alone if one is given, simulated once more.
  Duration planned(std::optional<plan::Codec> codec = std::nullopt);

 private:
  CompressionCase(std::mt19937_64&& random, int layers, double error_budget);

  topology::Topology topology_;
  plan::Workload workload_;
  planner::PlannerOptions options_;
  std::unique_ptr<plan::CostModel> costs_;
  planner::CandidateSet candidates_;
  std::vector<planner::TensorGroup> groups_;
  planner::CompressionTable table_;
  planner::Timeline timeline_;
};

/// Steps by simulation.
struct CompressionByForce {
  Duration best;     ///< of all assignments
  Duration uniform;  ///< of the uniform ones
  Duration chosen;   ///< what the search chooses by the timeline
  Duration planned;
  Duration fp16;  ///< of a plan with FP16 alone
  std::size_t assignments = 0;
};
CompressionByForce by_force(CompressionCase& one);

}  // namespace rackrail::test
