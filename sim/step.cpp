// Steps of a plan: programs of the ranks in, times and what they were spent on out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "sim/burst_bound.hpp"
#include "sim/engine.hpp"
#include "sim/placed_plan.hpp"
#include "sim/programs.hpp"
#include "sim/records.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

constexpr Time kNoLimit = std::numeric_limits<Time>::max();

/// What a step is spent on. The slowest device is the one that computes and waits for data longest:
/// what is left of the step is what synchronisation adds, whichever rank ends last; what the others
/// are faster they wait for it.
void add_parts(const Engine& engine, std::span<const Rank> ranks, StepResult& result) {
  const Duration time = step_period(result.steps, result.reported);
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

/// Throws what the simulation of a step has against its inputs.
void require_step(const plan::Plan& plan, const plan::Workload& workload,
                  const topology::Topology& topology, const SimulationOptions& options) {
  require_in_step(options);
  if (options.steps == 1 && options.local_steps > 1) {
    throw ConfigError(ErrorContext{
        "", "scenario", fmt::format("local_steps: {} in a run of one step", options.local_steps),
        "'steps: ' beside it, or --steps: the last step always synchronises"});
  }
  require_matching(plan, workload, topology);
}

std::vector<Rank> every_rank(const topology::Topology& topology) {
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

/// None where the end is not before the limit, or `stop` came first.
std::optional<StepResult> simulate_placed(const PlacedPlan& all, const topology::Topology& topology,
                                          const SimulationOptions& options, Time limit,
                                          const std::function<bool()>& stop) {
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
  if (!engine.run_until(limit, stop)) {
    return std::nullopt;
  }

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
  result.copies = engine.longest_copies(engine.kept());
  result.links = link_uses(topology, engine.link_bytes(engine.kept()), engine.carried(),
                           options.disturbances, Duration(from), Duration(to));
  const bool is_last = last + 1 == result.steps.size();
  result.records = records(engine, topology, options, ranks,
                           {.from = from, .to = to, .shown_until = is_last ? INT64_MAX : to});
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

}  // namespace

StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options) {
  require_step(plan, workload, topology, options);
  if (has_burst_bounds(topology, options) && burst_bound(plan, topology).are_many) {
    return simulate_step(plan, workload, without_bursts(topology), options);
  }
  GraphIndexer indexer(topology, options);
  const std::vector<Rank> ranks = every_rank(topology);
  return *simulate_placed({plan, workload, ranks, indices_of(plan, indexer)}, topology, options,
                          kNoLimit, {});
}

std::optional<plan::StepEstimate> estimate_step_below(
    const plan::Plan& plan, const plan::Workload& workload, const topology::Topology& topology,
    const SimulationOptions& options, GraphIndexer& indexer, bool may_fold, Duration limit) {
  require_step(plan, workload, topology, options);
  const auto estimate = [&](const PlacedPlan& placed) {
    const auto result =
        simulate_placed(placed, topology, options, limit.picoseconds(), options.stop);
    return result.has_value() && result->estimate.step_time < limit
               ? std::optional(result->estimate)
               : std::nullopt;
  };
  if (may_fold) {
    auto folded = indexer.folded(buffers_of(plan));
    if (folded.has_value() && have_equal_batches(plan, indexer.ranks(), folded->turns)) {
      const std::vector<Rank>& ranks = folded->ranks;
      return estimate({plan, workload, ranks, std::move(folded->indices), ranks});
    }
  }
  const std::vector<Rank> ranks = every_rank(topology);
  return estimate({plan, workload, ranks, indices_of(plan, indexer)});
}

}  // namespace rackrail::sim
