// Steps of a plan: programs of the ranks in, times and what they were spent on out.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/flow_records.hpp"
#include "sim/programs.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

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
      path.push_back({.what = what,
                      .end = Duration(activity.end - from),
                      .kind = std::string(name_of(activity.task.kind)),
                      .link = engine.narrowest_link(activity.task)});
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
      const auto first = first_runs.empty() ? 0 : first_runs.back();
      Program program = program_of(plan, workload, topology, Rank(r), first,
                                   slowdown(options.disturbances, Rank(r), step));
      for (ComputePiece& piece : program.pieces) {
        if (!synchronizes) {
          piece.ready.clear();
        }
      }
      engine.add_step(Rank(r), std::move(program.pieces), runs, program.optimizer);
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
  require_in_step(options);
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
