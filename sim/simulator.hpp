// The simulator's door: a plan, a topology and a workload in; times, utilisation, a timeline out.
//
// Deterministic: integer picoseconds, ties broken by the order of creation; the same input gives
// the same bytes out. See sim/README.md for the model and its limits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/regular_schedule.hpp"
#include "plan/workload.hpp"
#include "sim/disturbances.hpp"
#include "sim/network_model.hpp"
#include "sim/packet_options.hpp"
#include "sim/routing.hpp"
#include "sim/step_choice.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// How closely the network is looked at.
enum class NetworkLevel : std::uint8_t {
  kFlow,    ///< sim/max_min_network.hpp
  kPacket,  ///< sim/packet_network.hpp; for small cases: the work grows with the bytes
};

/// Each rank has a loader that prepares one batch after another.
struct DataLoading {
  Duration batch;    ///< time for one
  int prefetch = 2;  ///< how many may be ready or in preparation, beside the one in use
};

struct SimulationOptions {
  std::optional<plan::DeviceRates> device_rates;  ///< for every rank; by device class if none
  /// What goes into Records; each takes memory for every task. The critical path of a collective
  /// comes with its timeline or flows only.
  bool record_critical_path = true;
  bool record_timeline = false;
  bool record_flows = false;
  /// Whether a collective by formulas is folded where it is symmetric (sim/symmetry.hpp): the same
  /// times, sooner. Never on the packet level: what shares a queue is not told by rates alone.
  bool use_symmetry = true;
  /// How early flows that share links may end, as a share of their time (max_min_network.hpp): 0
  /// is exact. None: usual_tolerance() for a CostModel, 0 elsewhere.
  std::optional<double> tolerance;
  NetworkLevel network = NetworkLevel::kFlow;
  PacketOptions packets;  ///< of the packet level
  Multipath multipath = Multipath::kPinned;
  int connections = 1;  ///< between two ranks, each with a hash of its own; of Multipath::kEcmp
  int steps = 1;        ///< > 1: steady state over several steps, of which one is reported
  StepChoice report;    ///< the slowest and the median one are found by simulating twice
  /// How many steps a rank may go on without the gradients of the last ones: it ends step s when
  /// those of step s − staleness are there. 0: synchronous.
  int staleness = 0;
  /// Ranks synchronise after every so many steps and learn for themselves between (periodic
  /// averaging).
  int local_steps = 1;
  bool is_asynchronous = false;        ///< only simulate_asynchronous() takes it, the others throw
  std::optional<DataLoading> loading;  ///< if none, data is always there
  Disturbances disturbances;
  /// Called now and then with the share of the messages' ends that are simulated, in 0..1; may be
  /// empty.
  std::function<void(double share)> progress = {};
  /// Asked now and then where a CostModel is asked for times below a limit; see
  /// CostModel::interrupt_when(). May be empty; nobody else asks it.
  std::function<bool()> stop = {};
};

/// What a link carried. Utilisation, here and in LinkTimeline, is the bytes that a link carried in
/// some time over those that it could have carried in it, with the capacities that it had then
/// (Disturbances::capacity). It counts all steps that were in progress and, at the packet level,
/// the packets' headers. So it is never above 1, except by rounding.
struct LinkUse {
  LinkId link;
  /// Of the plan: in a step, those of the gradients that it is about, whenever they move.
  Bytes bytes;
  double utilization = 0;             ///< by the plan, over the step
  Bytes background;                   ///< of others (Disturbances::background), over the step
  double background_utilization = 0;  ///< by them
};

/// A stretch of the critical path, latest last; together they cover the step without gaps.
struct PathPiece {
  std::string what;  ///< "rank 2 backward", "bucket 7: rank 1 → rank 3 on tor0→core", …
  Duration start;
  Duration end;
  Duration waited;  ///< of a message: what sharing its links with others has cost
  /// Without names: "load data", "forward", "backward", "optimiser", "encode", "decode", "add",
  /// "copy to host memory", "copy from host memory", "held to its rate", "message overhead",
  /// "receive overhead", "latency" or "wire".
  std::string kind;
  std::optional<LinkId> link;  ///< of "wire": which it waited for (sim/binding_links.hpp)
};

/// One slice of one transfer, as it went over the network.
struct FlowRecord {
  std::uint32_t bucket = 0;
  std::uint32_t slice = 0;
  Rank src;
  Rank dst;
  Bytes bytes;
  Duration start;
  Duration sent;       ///< the last byte has left
  Duration delivered;  ///< and is there
  std::vector<LinkId> links;
  std::vector<double> shares;  ///< of the bytes, by link; none: all of them on each
};

/// Utilisation of links (as in LinkUse) over a step: at [i · links.size() + j], of links[j] from
/// i · bin to (i + 1) · bin; 0 where the link could carry nothing.
struct LinkTimeline {
  Duration bin;
  std::vector<LinkId> links;
  std::vector<double> utilization;  ///< by the plan
  std::vector<double> background;   ///< by others; empty where there are none
};

/// From the first rank's start to the last one's end; steps may overlap.
struct StepSpan {
  Duration start;
  Duration end;
  Duration waited_for_data;  ///< of the rank that waited longest
};

/// What a step adds to a run: from the end of the one before (the first: from its start) to its own
/// end. Where steps overlap, as those of a straggler or with a staleness do, it is less than the
/// span, in which ranks are at other steps, too.
Duration step_period(const std::vector<StepSpan>& steps, std::size_t step);

/// What happened one by one, as far as SimulationOptions asks for it. Times are since `from`.
struct Records {
  Duration from;  ///< simulated time
  Duration to;    ///< the same; what is late (a staleness) may end after it
  std::vector<PathPiece> critical_path;
  std::vector<plan::TimelineEvent> timeline;
  std::vector<FlowRecord> flow_records;  ///< by start
  std::vector<LinkPiece> link_pieces;    ///< with the flows: what links sent, also of others
};

struct StepResult {
  plan::StepEstimate estimate;
  std::vector<StepSpan> steps;  ///< all of them
  std::size_t reported = 0;     ///< the step that all else is about, except the mean
  /// Of all of them, until the last gradient is there: a staleness does not wait for that.
  Duration mean_step_time;
  /// Of the slowest device, which computes and waits for data longest: with its compute time
  /// (estimate.compute_time) and what synchronisation adds (estimate.sync_share of the step) this
  /// is the whole step.
  Duration waited_for_data;
  /// How much less than the slowest device the others compute and wait for data, on average: in it
  /// they wait for that one, and no network would make the step shorter. Beside the parts above.
  Duration waited_for_others;
  double device_busy = 0;      ///< share of the step in which devices compute, on average
  std::vector<LinkUse> links;  ///< only links that carried something
  /// How long a rank copies to its host's memory, or from there, at most; none where nothing is
  /// staged (topology::Node::host_staging).
  std::optional<Duration> copies;
  Records records;               ///< of the reported step
  std::vector<QueueUse> queues;  ///< over all steps; of the packet level
  std::uint64_t events = 0;
  std::uint64_t flows = 0;
};

struct CollectiveResult {
  Duration time;
  std::vector<LinkUse> links;
  Records records;
  std::vector<QueueUse> queues;  ///< of the packet level
  std::uint64_t events = 0;
  std::uint64_t flows = 0;   ///< that were simulated
  std::uint32_t copies = 1;  ///< flows of the schedule that each of them stands for
};

/// Throws PlanError when plan, topology and workload do not belong together, SimulationError for
/// what can never end (naming what waits for what).
StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options);

struct AsynchronousResult {
  std::vector<Duration> step_times;  ///< by rank: mean
  double samples_per_s = 0;          ///< of all ranks together
  /// Updates of others that servers applied between reading the parameters for a rank's pull and
  /// applying its next update, on average: parameters are read when the rank's last one is applied.
  /// This and the next of each bucket's updates until the first of its ranks has ended.
  double staleness = 0;
  double conflict_rate = 0;  ///< share of the updates for which there was one at least
};

/// `options.steps` steps of each rank with an asynchronous parameter server: a rank pushes its
/// gradients to the servers of a bucket's parts and pulls the parameters as soon as its own update
/// is applied, whatever the others do. All buckets of the plan must have the schedule
/// "parameter-server"; throws PlanError otherwise. A bucket counts as updated when the last of its
/// servers has added the gradient.
AsynchronousResult simulate_asynchronous(const plan::Plan& plan, const plan::Workload& workload,
                                         const topology::Topology& topology,
                                         const SimulationOptions& options);

/// Of all links that carried something in what was recorded with its flows, in `bins` equal parts
/// of the time from its start to the last delivery. The disturbances are those that it was
/// simulated with.
LinkTimeline link_timeline(const Records& records, const topology::Topology& topology,
                           const Disturbances& disturbances, std::size_t bins);

/// One collective of `elements` floats per rank alone on the cluster. Transfers without a pinned
/// route take the topology's route. What is recorded is never folded by symmetry.
CollectiveResult simulate_collective(const plan::TransferGraph& graph, std::int64_t elements,
                                     std::int64_t slice_elements,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options);

/// The same for a schedule given by formulas; `elements` must be at least its number of chunks.
CollectiveResult simulate_collective(const plan::RegularSchedule& schedule, std::int64_t elements,
                                     std::int64_t slice_elements,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options);

/// Of clusters of this size: 0 up to 95 ranks, where every flow can be followed exactly; 1 % from
/// there on, as exchanges between all of them would take minutes.
double usual_tolerance(const topology::Topology& topology);

/// The CostModel that simulates. Keeps references: topology must outlive it.
std::unique_ptr<plan::CostModel> make_cost_model(const topology::Topology& topology,
                                                 const SimulationOptions& options);

}  // namespace rackrail::sim
