// What the planner asks of a simulator, declared here so that the two need not know each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

/// Speed of a device at everything that is not training: bytes of FP32 gradient per second.
struct CodecRate {
  Bandwidth encode;
  Bandwidth decode;  ///< decode-and-add costs the same within the accuracy of this model
};
struct DeviceRates {
  std::array<CodecRate, kCodecKinds> codecs;  ///< by CodecKind, of default parameters
  Bandwidth reduce;                           ///< adding a received FP32 slice
  Duration
      launch;  ///< what each encode, decode or reduce call occupies the device beyond its bytes
  /// From a call to its start on an idle device; overlapped with other calls on a busy one.
  Duration wake;
};
/// Rates by a data sheet: memory bandwidth over the bytes that each codec moves per element.
DeviceRates device_rates(const topology::DeviceFigures& device);
/// Of a device class ("V100", "A100", "H100", "cpu", …), the likeliest (likeliest_device_class)
/// where the name is not known, the default GPU where nothing is likely.
DeviceRates device_rates(std::string_view device_class);
/// By how much longer a codec takes for its parameters than with the default ones: the memory
/// traffic of both, by which rates go.
struct CodecEffort {
  double encode = 1;
  double decode = 1;
};
CodecEffort codec_effort(const Codec& codec);

/// Whether the topology has a measured processor and the rank is such a one: of class "cpu", or of
/// one that is not known and no GPU.
bool is_measured(const topology::Topology& topology, Rank rank);
/// Of a rank: what was measured, where something was; else that of its class, also for codecs that
/// were not measured.
DeviceRates device_rates(const topology::Topology& topology, Rank rank);

/// One thing that happened in a simulated or measured step: for timelines and traces.
struct TimelineEvent {
  std::string what;   ///< "backward", "bucket 3", "encode bucket 3" …
  std::string track;  ///< "rank 0 compute", "rank 0 network" …
  Duration start;
  Duration end;
};

struct StepEstimate {
  Duration step_time;
  Duration compute_time;  ///< slowest rank: forward, backward, optimiser without any waiting
  /// Of the step, what is left beside the compute time and the waiting for data of the rank where
  /// they take longest: (step − compute − data) / step.
  double sync_share = 0;
  std::vector<Duration> bucket_ready;  ///< latest rank
  std::vector<Duration> bucket_done;   ///< latest rank
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  CostModel() = default;
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  /// Time of one collective alone on the cluster, from the start on all ranks to the end on the
  /// last. Where links let bursts pass (plan/alpha_beta.hpp) it may be the mean time of many in a
  /// row. That is so if they take longer, and if so many bursts fit into the time that they hardly
  /// matter, except for one message at a time. The time of many in a row counts each message as a
  /// little, up to 2 % in all, and each pair of ranks that talk, up to 0.5 %. Throws
  /// SimulationError for a graph that cannot end.
  virtual Duration collective_time(const TransferGraph& graph, std::int64_t elements,
                                   std::int64_t slice_elements) = 0;
  /// The same where only less than `limit` is of interest: none when it is no less, which is found
  /// sooner.
  virtual std::optional<Duration> collective_time_below(const TransferGraph& graph,
                                                        std::int64_t elements,
                                                        std::int64_t slice_elements,
                                                        Duration limit) {
    const Duration time = collective_time(graph, elements, slice_elements);
    return time < limit ? std::optional(time) : std::nullopt;
  }
  /// One training step of the plan: forward, backward with overlap, optimiser.
  virtual StepEstimate step(const Plan& plan, const Workload& workload) = 0;
  /// The same where only less than `limit` is of interest: none when it is no less, which is found
  /// sooner.
  virtual std::optional<StepEstimate> step_below(const Plan& plan, const Workload& workload,
                                                 Duration limit) {
    const StepEstimate estimate = step(plan, workload);
    return estimate.step_time < limit ? std::optional(estimate) : std::nullopt;
  }
  /// `stop` is asked now and then while something is simulated of which only less than a limit is
  /// of interest: from the first true on there may be no answer. Empty: to the end, as all else.
  /// Returns what was asked before.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): models keep it
  virtual std::function<bool()> interrupt_when(std::function<bool()> /*stop*/) { return {}; }
  /// The same without approximation, of a model that saves time on very large clusters: every flow
  /// is simulated. None where step() does so already. Symmetric ranks may still be simulated once.
  virtual std::optional<StepEstimate> exact_step(const Plan& /*plan*/,
                                                 const Workload& /*workload*/) {
    return std::nullopt;
  }
  /// By what share the times of this plan's step are longer than the step itself, so that of plans
  /// that take the same the better one is shorter. A prediction is without it.
  virtual double preference(const Plan& /*plan*/) const { return 0; }
  /// step() without it.
  StepEstimate predicted_step(const Plan& plan, const Workload& workload) {
    StepEstimate estimate = step(plan, workload);
    estimate.step_time = scaled(estimate.step_time, 1 / (1 + preference(plan)));
    return estimate;
  }
  /// Whether collective_time() follows every flow exactly.
  virtual bool has_exact_times() const { return true; }
  /// collective_time_below() with every flow followed exactly.
  virtual std::optional<Duration> exact_collective_time_below(const TransferGraph& graph,
                                                              std::int64_t elements,
                                                              std::int64_t slice_elements,
                                                              Duration limit) {
    return collective_time_below(graph, elements, slice_elements, limit);
  }
  /// How many of the graph's transfers a simulation of a lone collective includes: all of them, or
  /// fewer where ranks are symmetric and one represents the others.
  virtual std::size_t followed_transfers(const TransferGraph& graph) {
    return graph.transfers().size();
  }
};

}  // namespace rackrail::plan
