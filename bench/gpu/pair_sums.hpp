// Exact sums by pairs of ranks: a shard is summed at one member of each pair, at the first pair,
// and comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/rank_processes.hpp"
#include "plan/plan.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/nccl/plan_executor.hpp"

namespace rackrail::bench {

struct SumOptions {
  std::size_t ranks = 4;
  std::int64_t elements = std::int64_t{1} << 24U;
  std::uint32_t steps = 10;
  std::string inside = "nccl";  ///< the pairs
  std::string across = "nccl";  ///< between them
  std::string codec = "none";   ///< between them

  runtime::DevicePath path() const;
};

/// Ranks 0 and 1, 2 and 3, …, of `members`, numbered as they are in it: those who are left.
runtime::RankGroups pairs_of(const std::vector<Rank>& members);
/// Groups have one or two ranks.
plan::Plan make_pair_plan(const SumOptions& options, const runtime::RankGroups& groups);

/// Whole numbers, which stay exact whatever is added to what, in FP16 for up to 10 ranks, too.
constexpr std::size_t kMostRanksInFp16 = 10;

/// A gradient of one rank on its GPU, and what it must become.
class CheckedGradient {
 public:
  CheckedGradient(std::int64_t elements, Rank self);

  /// What this rank has to give.
  void fill();
  std::span<float> span() const { return memory_.span(); }
  const runtime::CudaStream& stream() const { return stream_; }
  /// How many elements are not the sum of what the members give. Waits for the stream.
  std::uint64_t wrong(const std::vector<Rank>& members);

 private:
  const Rank self_;
  runtime::CudaStream stream_;
  runtime::DeviceBuffer<float> memory_;
  std::vector<float> values_;
};

/// One rank's executor of the pairs' plan, with its transport.
class PairSums {
 public:
  /// With all other members of the meeting.
  PairSums(const SumOptions& options, Meeting& meeting, Shared& shared,
           const CheckedGradient& gradient, std::uint32_t epoch);
  ~PairSums();
  PairSums(const PairSums&) = delete;
  PairSums& operator=(const PairSums&) = delete;

  /// Sums the gradient; throws RuntimeFailure where a rank is lost.
  void sum(const CheckedGradient& gradient);
  void abort(const std::string& reason) { executor_->abort(reason); }
  bool is_staged() const;

 private:
  const plan::Plan plan_;
  std::unique_ptr<runtime::Transport> transport_;
  std::unique_ptr<runtime::PlanExecutor> executor_;
  std::uint32_t step_ = 0;
};

}  // namespace rackrail::bench
