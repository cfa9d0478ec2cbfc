// Steps of a plan: programs of the ranks in, times and what they were spent on out.
#include <algorithm>
#include <cmath>

#include "sim/engine.hpp"
#include "sim/flow_records.hpp"
#include "sim/placed_plan.hpp"
#include "sim/programs.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

/// What a message took longer than it would have taken alone.
Duration waited(const Engine& engine, const Activity& activity, const topology::Topology& topology,
                const Disturbances& disturbances) {
  if (activity.task.kind != TaskKind::kWire) {
    return Duration();
  }
  const Engine::Message message = engine.message(activity.task);
  Duration alone;
  for (std::size_t i = 0; i < message.route->links.size(); ++i) {
    const double bytes = share_of(*message.route, i) * static_cast<double>(message.bytes.count());
    const double rate = mean_rate(topology, disturbances, message.route->links[i],
                                  Duration(activity.start), Duration(activity.end));
    if (rate > 0) {
      alone = std::max(alone, Duration::from_seconds(bytes / rate));
    }
  }
  return std::max(Duration(), Duration(activity.end - activity.start) - alone);
}

std::vector<PathPiece> critical_path(const Engine& engine, const topology::Topology& topology,
                                     const Disturbances& disturbances, Time from,
                                     std::uint32_t last) {
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
    path.back().waited += waited(engine, activity, topology, disturbances);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

/// How many synchronisations there are in the steps up to this one (placed_plan.cpp).
std::size_t synchronisations_until(std::size_t step, const SimulationOptions& options) {
  const std::size_t whole = (step + 1) / static_cast<std::size_t>(options.local_steps);
  const bool is_odd_last = step + 1 == static_cast<std::size_t>(options.steps) &&
                           options.steps % options.local_steps != 0;
  return whole + (is_odd_last ? 1 : 0);
}

}  // namespace

StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options) {
  GraphIndexer indexer(topology, options.multipath);
  return simulate_step(plan, workload, topology, options, indexer);
}

StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options,
                         GraphIndexer& indexer) {
  require_in_step(options);
  require_matching(plan, workload, topology);
  Engine engine(topology, options);
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    ranks.emplace_back(r);
  }
  PlacedPlan all{plan, workload, ranks, {}};
  for (const plan::Bucket& bucket : plan.buckets) {
    all.indices.push_back(
        indexer.index(plan.schedules.at(bucket.schedule), bucket.elements, bucket.slice_elements));
  }
  const std::vector<std::uint32_t> first_runs =
      add_steps(engine, all, topology, options, options.steps);
  engine.run();

  StepResult result;
  result.steps = spans(engine, ranks, options.steps);
  result.reported = options.report.choose(result.steps);
  const std::size_t last = result.reported;
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
  result.estimate.step_time = Duration(to - from);
  result.estimate.compute_time = Duration(compute);
  if (to > from) {
    const Engine::StepTimes& own = engine.steps_of(slowest)[last];
    const auto share = [&](Time time) {
      return static_cast<double>(time) / static_cast<double>(to - from);
    };
    result.estimate.sync_share = std::max(0.0, 1 - share(own.compute + own.waited_for_data));
    for (const Rank rank : ranks) {
      result.device_busy +=
          share(engine.steps_of(rank)[last].compute) / static_cast<double>(ranks.size());
    }
  }
  auto buckets = static_cast<std::uint32_t>(plan.buckets.size());
  result.mean_step_time =
      Duration(until_all_done(engine, result.steps, first_runs.front(), first_runs.back() + buckets)
                   .picoseconds() /
               options.steps);
  // Of the last synchronisation up to this step, which need not be in it.
  const std::size_t before = synchronisations_until(last, options);
  const std::uint32_t first_run = before == 0 ? 0 : first_runs[before - 1];
  buckets = before == 0 ? 0 : buckets;
  for (std::uint32_t b = 0; b < buckets; ++b) {
    const Time ready = engine.run_ready(first_run + b) - from;
    result.estimate.bucket_ready.push_back(Duration(ready));
    result.estimate.bucket_done.push_back(
        Duration(std::max(ready, engine.run_done(first_run + b) - from)));
  }
  result.links = link_uses(topology, engine.link_bytes(first_run, first_run + buckets),
                           engine.background_bytes(from, to), options.disturbances, Duration(from),
                           Duration(to));
  if (options.record_timeline) {
    const bool is_last = last + 1 == result.steps.size();
    result.timeline = timeline(engine, from, is_last ? INT64_MAX : to, ranks);
  }
  if (options.record_flows) {
    result.flow_records = flow_records(engine, from, first_run, first_run + buckets);
    result.link_pieces = engine.link_pieces();
    std::erase_if(result.link_pieces, [&](const LinkPiece& piece) { return piece.end <= from; });
    for (LinkPiece& piece : result.link_pieces) {
      piece.begin -= from;
      piece.end -= from;
    }
  }
  if (options.record_critical_path) {
    result.critical_path = critical_path(engine, topology, options.disturbances, from,
                                         engine.steps_of(slowest)[last].last_activity);
  }
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

}  // namespace rackrail::sim
