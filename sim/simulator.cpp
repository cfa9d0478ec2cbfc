#include "sim/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/symmetry.hpp"

namespace rackrail::sim {

namespace {

void require_same_ranks(const std::string& what, std::size_t ranks,
                        const topology::Topology& topology) {
  if (ranks != topology.rank_count()) {
    throw PlanError(ErrorContext{
        "", what, fmt::format("{} ranks", ranks),
        fmt::format("{} as cluster '{}' has", topology.rank_count(), topology.name())});
  }
}

void require_matching(const plan::Plan& plan, const plan::Workload& workload,
                      const topology::Topology& topology) {
  require_same_ranks("plan '" + plan.name + "'", plan.rank_count(), topology);
  if (plan.workload_digest != workload.digest()) {
    throw PlanError(ErrorContext{"", "plan '" + plan.name + "'",
                                 fmt::format("a plan for model '{}'", plan.workload_name),
                                 fmt::format("one for model '{}'", workload.name)});
  }
  if (plan.batch.local_batch.size() != plan.rank_count()) {
    throw PlanError(ErrorContext{"", "plan '" + plan.name + "'",
                                 fmt::format("{} local batches", plan.batch.local_batch.size()),
                                 fmt::format("{}, one per rank", plan.rank_count())});
  }
}

/// One rank's compute pieces: passes without communication first (accumulation), then forward, then
/// backward cut at the moments at which buckets become ready.
std::vector<ComputePiece> pieces_of(const plan::Plan& plan, const plan::Workload& workload,
                                    const std::string& device_class, std::size_t rank,
                                    std::uint32_t first_run, Duration* optimizer) {
  const plan::ComputeTimes times =
      plan::compute_times(workload, device_class, plan.batch.local_batch[rank]);
  *optimizer = times.optimizer;
  std::vector<ComputePiece> pieces;
  for (std::int64_t pass = 1; pass < plan.batch.accumulation; ++pass) {
    pieces.push_back({TaskKind::kForward, times.forward, {}});
    pieces.push_back({TaskKind::kBackward, times.backward, {}});
  }
  pieces.push_back({TaskKind::kForward, times.forward, {}});
  std::map<Duration, std::vector<std::uint32_t>> ready;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    Duration last;
    for (const std::uint32_t tensor : plan.buckets[b].tensors) {
      last = std::max(last, times.ready.at(tensor));
    }
    ready[last].push_back(first_run + static_cast<std::uint32_t>(b));
  }
  Duration at;
  for (auto& [when, runs] : ready) {
    pieces.push_back({TaskKind::kBackward, when - at, std::move(runs)});
    at = when;
  }
  if (times.backward > at) {
    pieces.push_back({TaskKind::kBackward, times.backward - at, {}});
  }
  return pieces;
}

std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               Duration time) {
  std::vector<LinkUse> uses;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i].count() > 0) {
      const auto rate = static_cast<double>(topology.link(LinkId(i)).bandwidth.bytes_per_second());
      uses.push_back({LinkId(i), bytes[i],
                      time > Duration()
                          ? static_cast<double>(bytes[i].count()) / (rate * time.seconds())
                          : 0});
    }
  }
  return uses;
}

std::vector<PathPiece> critical_path(const Engine& engine, Time from, std::uint32_t last) {
  std::vector<PathPiece> path;
  for (std::uint32_t at = last; at != kNoActivity; at = engine.activities()[at].cause) {
    const Activity& activity = engine.activities()[at];
    if (activity.end <= from) {
      break;
    }
    if (activity.end == activity.start) {
      continue;
    }
    const Time start = std::max(activity.start, from) - from;
    const std::string what = engine.describe(activity.task);
    if (!path.empty() && path.back().what == what) {
      path.back().start = Duration(start);
    } else {
      path.push_back({what, Duration(start), Duration(activity.end - from)});
    }
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<plan::TimelineEvent> timeline(const Engine& engine, Time from) {
  std::vector<plan::TimelineEvent> events;
  for (const Activity& activity : engine.activities()) {
    const Task& task = activity.task;
    if (activity.end > activity.start && activity.start >= from &&
        task.kind != TaskKind::kLatency && task.kind != TaskKind::kOverhead) {
      events.push_back({engine.describe(task), engine.track(task), Duration(activity.start - from),
                        Duration(activity.end - from)});
    }
  }
  return events;
}

CollectiveResult run_alone(const std::shared_ptr<const GraphIndex>& index, const std::string& name,
                           const topology::Topology& topology, SimulationOptions options,
                           std::span<const LinkId> stands_for = {}) {
  options.record_critical_path = false;
  options.record_timeline = false;
  Engine engine(topology, options);
  const std::uint32_t run = engine.add_run(index, name);
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    if (index->slices_at[r] > 0) {
      engine.add_step(Rank(r), {{TaskKind::kForward, Duration(), {run}}}, {run}, Duration());
    }
  }
  engine.run();
  CollectiveResult result;
  result.time = Duration(engine.run_done(run));
  std::vector<Bytes> bytes = engine.link_bytes(run, run + 1);
  for (std::size_t i = 0; i < stands_for.size(); ++i) {
    bytes[i] = bytes[stands_for[i].index()];
  }
  result.links = link_uses(topology, bytes, result.time);
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

class SimulatedCosts final : public plan::CostModel {
 public:
  SimulatedCosts(const topology::Topology& topology, SimulationOptions options)
      : topology_(topology), options_(std::move(options)) {
    options_.record_critical_path = false;
    options_.record_timeline = false;
    options_.steps = 1;
  }
  Duration collective_time(const plan::TransferGraph& graph, std::int64_t elements,
                           std::int64_t slice_elements) override {
    return simulate_collective(graph, elements, slice_elements, topology_, options_).time;
  }
  plan::StepEstimate step(const plan::Plan& plan, const plan::Workload& workload) override {
    return simulate_step(plan, workload, topology_, options_).estimate;
  }

 private:
  const topology::Topology& topology_;
  SimulationOptions options_;
};

}  // namespace

StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options) {
  require_matching(plan, workload, topology);
  Engine engine(topology, options);
  topology::Router router(topology);
  std::vector<std::shared_ptr<const GraphIndex>> indices;
  for (const plan::Bucket& bucket : plan.buckets) {
    indices.push_back(index_graph(plan.schedules.at(bucket.schedule), bucket.elements,
                                  bucket.slice_elements, topology, router));
  }
  const auto buckets = static_cast<std::uint32_t>(plan.buckets.size());
  for (int step = 0; step < options.steps; ++step) {
    std::vector<std::uint32_t> runs;
    for (std::uint32_t b = 0; b < buckets; ++b) {
      runs.push_back(engine.add_run(indices[b], fmt::format("bucket {}", b)));
    }
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      Duration optimizer;
      const std::string& device = topology.node(topology.node_of(Rank(r))).device_class;
      auto pieces = pieces_of(plan, workload, device, r, runs.empty() ? 0 : runs[0], &optimizer);
      engine.add_step(Rank(r), std::move(pieces), runs, optimizer);
    }
  }
  engine.run();

  const auto last = static_cast<std::size_t>(options.steps - 1);
  Time from = INT64_MAX;
  Time to = 0;
  Time compute = 0;
  Rank slowest;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const auto& times = engine.steps_of(Rank(r))[last];
    from = std::min(from, times.start);
    compute = std::max(compute, times.compute);
    if (times.end > to) {
      to = times.end;
      slowest = Rank(r);
    }
  }
  StepResult result;
  result.estimate.step_time = Duration(to - from);
  result.estimate.compute_time = Duration(compute);
  if (to > from) {
    const Time own = engine.steps_of(slowest)[last].compute;
    result.estimate.sync_share =
        std::max(0.0, 1 - static_cast<double>(own) / static_cast<double>(to - from));
  }
  const auto first_run = static_cast<std::uint32_t>(last) * buckets;
  for (std::uint32_t b = 0; b < buckets; ++b) {
    const Time ready = engine.run_ready(first_run + b) - from;
    result.estimate.bucket_ready.push_back(Duration(ready));
    result.estimate.bucket_done.push_back(
        Duration(std::max(ready, engine.run_done(first_run + b) - from)));
  }
  result.links = link_uses(topology, engine.link_bytes(first_run, first_run + buckets),
                           result.estimate.step_time);
  if (options.record_timeline) {
    result.timeline = timeline(engine, from);
  }
  if (options.record_critical_path) {
    result.critical_path =
        critical_path(engine, from, engine.steps_of(slowest)[last].last_activity);
  }
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

CollectiveResult simulate_collective(const plan::TransferGraph& graph, std::int64_t elements,
                                     std::int64_t slice_elements,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options) {
  require_same_ranks("schedule '" + graph.name() + "'", graph.rank_count(), topology);
  topology::Router router(topology);
  return run_alone(index_graph(graph, elements, slice_elements, topology, router), graph.name(),
                   topology, options);
}

CollectiveResult simulate_collective(const plan::RegularSchedule& schedule, std::int64_t elements,
                                     std::int64_t slice_elements,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options) {
  require_same_ranks("schedule '" + schedule.name() + "'", schedule.rank_count(), topology);
  topology::Router router(topology);
  std::vector<std::vector<LinkId>> routes;
  for (const plan::RegularSchedule::Lane& lane : schedule.lanes()) {
    routes.push_back(router.route(lane.src, lane.dst));
  }
  const bool may_fold = options.use_symmetry && options.network == NetworkLevel::kFlow;
  const std::optional<FoldedSchedule> folded =
      may_fold ? fold(schedule, elements, routes, topology, options) : std::nullopt;
  if (!folded) {
    return run_alone(
        index_schedule(schedule, elements, slice_elements, topology, std::move(routes)),
        schedule.name(), topology, options);
  }
  CollectiveResult result = run_alone(
      index_schedule(*folded->schedule, elements, slice_elements, topology, folded->routes),
      schedule.name(), topology, options, folded->stands_for);
  result.copies = folded->copies;
  return result;
}

std::unique_ptr<plan::CostModel> make_cost_model(const topology::Topology& topology,
                                                 const SimulationOptions& options) {
  return std::make_unique<SimulatedCosts>(topology, options);
}

}  // namespace rackrail::sim
