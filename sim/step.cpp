// Steps of a plan: programs of the ranks in, times and what they were spent on out.
#include <algorithm>
#include <cmath>

#include "sim/binding_links.hpp"
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
  if (message.route->rate_cap > 0) {
    const auto bytes = static_cast<double>(message.bytes.count());
    alone = std::max(alone, Duration::from_seconds(bytes / message.route->rate_cap));
  }
  return std::max(Duration(), Duration(activity.end - activity.start) - alone);
}

std::vector<PathPiece> critical_path(const Engine& engine, const topology::Topology& topology,
                                     const Disturbances& disturbances, Time from,
                                     std::uint32_t last) {
  std::vector<const Activity*> on_path;
  for (const Activity* at = engine.activity(last); at != nullptr && at->end > from;
       at = engine.activity(at->cause)) {
    if (at->end > at->start) {
      on_path.push_back(at);
    }
  }
  if (on_path.empty()) {
    return {};
  }
  const BindingLinks binding(engine, topology, disturbances, on_path, from, on_path.front()->end);
  std::vector<PathPiece> path;
  for (const Activity* at : on_path) {
    const Activity& activity = *at;
    const Time start = std::max(activity.start, from) - from;
    const std::optional<LinkId> link = binding.of(at);
    std::string what = engine.describe(activity.task);
    if (link) {
      what += " on " + topology.link_name(*link);
    }
    if (path.empty() || path.back().what != what) {
      path.push_back({.what = what,
                      .end = Duration(activity.end - from),
                      .kind = std::string(name_of(activity.task.kind)),
                      .link = link});
    }
    path.back().start = Duration(start);
    path.back().waited += waited(engine, activity, topology, disturbances);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

/// The first of those that end last.
Rank last_to_end(const Engine& engine, std::span<const Rank> ranks) {
  return *std::max_element(ranks.begin(), ranks.end(), [&](Rank a, Rank b) {
    return engine.watched_times(a).end < engine.watched_times(b).end;
  });
}

/// What a step is spent on. The slowest device is the one that computes and waits for data longest:
/// what is left of the step is what synchronisation adds, whichever rank ends last; what the others
/// are faster they wait for it.
void add_parts(const Engine& engine, std::span<const Rank> ranks, StepResult& result) {
  const StepSpan& span = result.steps[result.reported];
  const Duration time = span.end - span.start;
  Engine::StepTimes slowest;
  double compute = 0;  // of all ranks together
  double own = 0;      // with waiting for data
  const auto own_time = [](const Engine::StepTimes& times) {
    return times.compute + times.waited_for_data;
  };
  for (const Rank rank : ranks) {
    const Engine::StepTimes& times = engine.watched_times(rank);
    compute += static_cast<double>(times.compute);
    own += static_cast<double>(own_time(times));
    if (own_time(times) > own_time(slowest)) {
      slowest = times;
    }
  }
  const auto count = static_cast<double>(ranks.size());
  result.estimate.step_time = time;
  result.estimate.compute_time = Duration(slowest.compute);
  result.waited_for_data = Duration(slowest.waited_for_data);
  result.waited_for_others =
      Duration(static_cast<Time>(static_cast<double>(own_time(slowest)) - own / count));
  if (time > Duration()) {
    result.estimate.sync_share = std::max(0.0, 1 - Duration(own_time(slowest)) / time);
    result.device_busy = compute / count / static_cast<double>(time.picoseconds());
  }
}

/// Which step is reported. What depends on how long they take is simulated without any record, so
/// that then only that step's need be kept.
std::size_t reported_step(const PlacedPlan& placed, const topology::Topology& topology,
                          const SimulationOptions& options) {
  if (const auto known = options.report.of(options.steps)) {
    return *known;
  }
  SimulationOptions quick = options;
  quick.record_critical_path = false;
  quick.record_timeline = false;
  quick.record_flows = false;
  Engine engine(topology, quick);
  const std::uint32_t program =
      add_steps(engine, placed, topology, quick, static_cast<std::size_t>(quick.steps));
  engine.run();
  return options.report.choose(engine.spans(program));
}

std::vector<Rank> all_ranks(const topology::Topology& topology) {
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    ranks.emplace_back(r);
  }
  return ranks;
}

std::vector<Buffer> buffers_of(const plan::Plan& plan) {
  std::vector<Buffer> buffers;
  for (const plan::Bucket& bucket : plan.buckets) {
    buffers.push_back({plan.schedules.at(bucket.schedule), bucket.elements, bucket.slice_elements});
  }
  return buffers;
}

std::vector<std::shared_ptr<const GraphIndex>> indices_of(const plan::Plan& plan,
                                                          GraphIndexer& indexer) {
  std::vector<std::shared_ptr<const GraphIndex>> indices;
  for (const Buffer& buffer : buffers_of(plan)) {
    indices.push_back(indexer.index(buffer));
  }
  return indices;
}

/// Whether ranks that turns take to each other compute the same.
bool have_equal_batches(const plan::Plan& plan, const RankTable& ranks, Turns turns) {
  const std::vector<std::int64_t>& batch = plan.batch.local_batch;
  for (std::size_t r = 0; r < batch.size(); ++r) {
    if (batch[r] != batch[ranks.first(Rank(r), turns).index()]) {
      return false;
    }
  }
  return true;
}

StepResult simulate_placed(const PlacedPlan& all, const topology::Topology& topology,
                           const SimulationOptions& options) {
  StepResult result;
  result.reported = reported_step(all, topology, options);
  const std::size_t last = result.reported;
  // The gradients of the last synchronisation up to this step, which need not be in it.
  const auto steps = static_cast<std::size_t>(options.steps);
  const auto synchronisation = last_synchronisation(last, options, steps);
  const std::span<const Rank> ranks = all.ranks;
  Engine engine(topology, options);
  const std::uint32_t program = add_steps(engine, all, topology, options, steps, synchronisation);
  engine.watch(last, last, options.steps > 1 || options.staleness > 0 || has_headers(options));
  engine.record_from(synchronisation.value_or(last));
  engine.run();

  result.steps = engine.spans(program);
  const Time from = result.steps[last].start.picoseconds();
  const Time to = result.steps[last].end.picoseconds();
  add_parts(engine, ranks, result);
  result.mean_step_time = Duration(engine.program_done(program) / options.steps);
  for (const std::uint32_t run : engine.kept()) {
    const Time ready = engine.run_ready(run) - from;
    result.estimate.bucket_ready.push_back(Duration(ready));
    result.estimate.bucket_done.push_back(Duration(std::max(ready, engine.run_done(run) - from)));
  }
  result.links = link_uses(topology, engine.link_bytes(engine.kept()), engine.carried(),
                           options.disturbances, Duration(from), Duration(to));
  if (options.record_timeline) {
    const bool is_last = last + 1 == result.steps.size();
    result.timeline = timeline(engine, from, is_last ? INT64_MAX : to, ranks);
  }
  if (options.record_flows) {
    result.flow_records = flow_records(engine, from);
    result.link_pieces = engine.link_pieces();
    std::erase_if(result.link_pieces, [&](const LinkPiece& piece) { return piece.end <= from; });
    for (LinkPiece& piece : result.link_pieces) {
      piece.begin -= from;
      piece.end -= from;
    }
  }
  if (options.record_critical_path) {
    result.critical_path =
        critical_path(engine, topology, options.disturbances, from,
                      engine.watched_times(last_to_end(engine, ranks)).last_activity);
  }
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

}  // namespace

StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options) {
  require_in_step(options);
  require_matching(plan, workload, topology);
  GraphIndexer indexer(topology, options.multipath, options.disturbances.seed);
  const std::vector<Rank> ranks = all_ranks(topology);
  return simulate_placed({plan, workload, ranks, indices_of(plan, indexer)}, topology, options);
}

plan::StepEstimate estimate_step(const plan::Plan& plan, const plan::Workload& workload,
                                 const topology::Topology& topology,
                                 const SimulationOptions& options, GraphIndexer& indexer,
                                 bool may_fold) {
  require_in_step(options);
  require_matching(plan, workload, topology);
  if (may_fold) {
    auto folded = indexer.folded(buffers_of(plan));
    if (folded.has_value() && have_equal_batches(plan, indexer.ranks(), folded->turns)) {
      const std::vector<Rank>& ranks = folded->ranks;
      return simulate_placed({plan, workload, ranks, std::move(folded->indices), ranks}, topology,
                             options)
          .estimate;
    }
  }
  const std::vector<Rank> ranks = all_ranks(topology);
  return simulate_placed({plan, workload, ranks, indices_of(plan, indexer)}, topology, options)
      .estimate;
}

}  // namespace rackrail::sim
