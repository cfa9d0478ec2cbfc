// Steps of a plan: programs of the ranks in, times and what they were spent on out.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/flow_records.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

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

/// What a message took longer than it would have taken alone.
Duration waited(const Engine& engine, const Activity& activity,
                const topology::Topology& topology) {
  if (activity.task.kind != TaskKind::kWire) {
    return Duration();
  }
  const Engine::Message message = engine.message(activity.task);
  Duration alone;
  for (const LinkId link : message.links) {
    alone = std::max(alone, message.bytes / topology.link(link).bandwidth);
  }
  return std::max(Duration(), Duration(activity.end - activity.start) - alone);
}

std::vector<PathPiece> critical_path(const Engine& engine, const topology::Topology& topology,
                                     Time from, std::uint32_t last) {
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
    if (path.empty() || path.back().what != what) {
      path.push_back({.what = what, .end = Duration(activity.end - from)});
    }
    path.back().start = Duration(start);
    path.back().waited += waited(engine, activity, topology);
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

Duration longer(Duration duration, double factor) {
  return factor == 1 ? duration : Duration::from_seconds(duration.seconds() * factor);
}

/// Puts the steps into the engine. Returns the number of each synchronisation's first collective.
std::vector<std::uint32_t> add_steps(Engine& engine,
                                     const std::vector<std::shared_ptr<const GraphIndex>>& indices,
                                     const plan::Plan& plan, const plan::Workload& workload,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options) {
  std::vector<std::uint32_t> first_runs;
  for (int step = 0; step < options.steps; ++step) {
    const bool synchronizes = (step + 1) % options.local_steps == 0 || step + 1 == options.steps;
    std::vector<std::uint32_t> runs;
    for (std::size_t b = 0; synchronizes && b < indices.size(); ++b) {
      runs.push_back(engine.add_run(indices[b], fmt::format("bucket {}", b)));
    }
    if (synchronizes) {
      first_runs.push_back(runs.empty() ? 0 : runs.front());
    }
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      Duration optimizer;
      const std::string& device = topology.node(topology.node_of(Rank(r))).device_class;
      auto pieces = pieces_of(plan, workload, device, r, first_runs.empty() ? 0 : first_runs.back(),
                              &optimizer);
      const double factor = slowdown(options.disturbances, Rank(r), step);
      for (ComputePiece& piece : pieces) {
        piece.duration = longer(piece.duration, factor);
        if (!synchronizes) {
          piece.ready.clear();
        }
      }
      engine.add_step(Rank(r), std::move(pieces), runs, longer(optimizer, factor));
    }
  }
  return first_runs;
}

std::vector<StepSpan> spans(const Engine& engine, std::size_t ranks, int steps) {
  std::vector<StepSpan> all;
  for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step) {
    Time start = INT64_MAX;
    Time end = 0;
    Time waited = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const Engine::StepTimes& times = engine.steps_of(Rank(r))[step];
      start = std::min(start, times.start);
      end = std::max(end, times.end);
      waited = std::max(waited, times.waited_for_data);
    }
    all.push_back({Duration(start), Duration(end), Duration(waited)});
  }
  return all;
}

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
  const std::vector<std::uint32_t> first_runs =
      add_steps(engine, indices, plan, workload, topology, options);
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
  result.steps = spans(engine, topology.rank_count(), options.steps);
  result.estimate.step_time = Duration(to - from);
  result.estimate.compute_time = Duration(compute);
  if (to > from) {
    const Time own = engine.steps_of(slowest)[last].compute;
    result.estimate.sync_share =
        std::max(0.0, 1 - static_cast<double>(own) / static_cast<double>(to - from));
  }
  // Of the last synchronisation, which need not be in the last step.
  const std::uint32_t first_run = first_runs.back();
  const auto buckets = static_cast<std::uint32_t>(plan.buckets.size());
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
  if (options.record_flows) {
    result.flow_records = flow_records(engine, from, first_run);
  }
  if (options.record_critical_path) {
    result.critical_path =
        critical_path(engine, topology, from, engine.steps_of(slowest)[last].last_activity);
  }
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

}  // namespace rackrail::sim
