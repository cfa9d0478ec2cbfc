#include "sim/simulator.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "sim/burst_bound.hpp"
#include "sim/engine.hpp"
#include "sim/placed_plan.hpp"
#include "sim/programs.hpp"
#include "sim/records.hpp"
#include "sim/results.hpp"
#include "sim/symmetry.hpp"

namespace rackrail::sim {

namespace {

std::vector<Rank> all_ranks(const topology::Topology& topology) {
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    ranks.emplace_back(r);
  }
  return ranks;
}

bool records_tasks(const SimulationOptions& options) {
  return options.record_timeline || options.record_flows;
}

/// One collective that all ranks start at once.
std::uint32_t add_alone(Engine& engine, const std::shared_ptr<const GraphIndex>& index,
                        const std::string& name, const topology::Topology& topology) {
  const std::uint32_t run = engine.add_run(index, name);
  engine.keep({&run, 1});
  for (const Rank rank : all_ranks(topology)) {
    if (index->slices_at[rank.index()] > 0) {
      engine.add_step(rank, {{TaskKind::kForward, Duration(), {run}}}, {run}, Duration());
    }
  }
  return run;
}

CollectiveResult run_alone(const std::shared_ptr<const GraphIndex>& index, const std::string& name,
                           const topology::Topology& topology, SimulationOptions options,
                           std::span<const LinkId> stands_for = {}) {
  options.record_critical_path = options.record_critical_path && records_tasks(options);
  Engine engine(topology, options);
  const std::uint32_t run = add_alone(engine, index, name, topology);
  engine.watch(0, 0, has_headers(options));
  engine.run();
  CollectiveResult result;
  result.time = Duration(engine.run_done(run));
  std::vector<Bytes> bytes = engine.link_bytes();
  for (std::size_t i = 0; i < stands_for.size(); ++i) {
    bytes[i] = bytes[stands_for[i].index()];
  }
  result.links =
      link_uses(topology, bytes, engine.carried(), options.disturbances, {}, result.time);
  result.records = records(engine, topology, options, all_ranks(topology),
                           {.to = result.time.picoseconds(), .shown_until = INT64_MAX});
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

class SimulatedCosts final : public plan::CostModel {
 public:
  SimulatedCosts(const topology::Topology& topology, SimulationOptions options)
      : topology_(topology), options_(std::move(options)), indexer_(topology, options_) {
    options_.record_critical_path = false;
    options_.record_timeline = false;
    options_.record_flows = false;
    options_.steps = 1;
    options_.tolerance = options_.tolerance.value_or(usual_tolerance(topology));
    may_fold_ = options_.use_symmetry && options_.tolerance > 0 &&
                options_.network == NetworkLevel::kFlow && options_.disturbances.empty();
    if (has_burst_bounds(topology, options_)) {
      without_bursts_ = without_bursts(topology);
    }
  }
  Duration collective_time(const plan::TransferGraph& graph, std::int64_t elements,
                           std::int64_t slice_elements) override {
    require_in_step(options_);
    require_same_ranks("schedule '" + graph.name() + "'", graph.rank_count(), topology_);
    const Bound bound = bound_of(graph, elements, slice_elements);
    return bound.applied_to(run_alone(index({graph, elements, slice_elements}), graph.name(),
                                      bound.topology, options_for(graph))
                                .time);
  }
  std::optional<Duration> collective_time_below(const plan::TransferGraph& graph,
                                                std::int64_t elements, std::int64_t slice_elements,
                                                Duration limit) override {
    return time_below({graph, elements, slice_elements}, limit, options_for(graph));
  }
  std::size_t followed_transfers(const plan::TransferGraph& graph) override {
    const auto folded = may_fold_ ? indexer_.folded_size(graph) : std::nullopt;
    return folded.value_or(graph.transfers().size());
  }
  plan::StepEstimate step(const plan::Plan& plan, const plan::Workload& workload) override {
    return whole_step(plan, workload, options_);
  }
  std::optional<plan::StepEstimate> step_below(const plan::Plan& plan,
                                               const plan::Workload& workload,
                                               Duration limit) override {
    if (!options_.disturbances.empty()) {  // what begins late ends late, and is no longer for it
      return CostModel::step_below(plan, workload, limit);
    }
    require_matching(plan, workload, topology_);
    const Bound bound = bound_of(plan);
    if (bound.in_a_row >= limit) {
      return std::nullopt;
    }
    auto estimate =
        estimate_step_below(plan, workload, bound.topology, options_, indexer_, may_fold_, limit);
    if (estimate) {
      estimate->step_time = bound.applied_to(estimate->step_time);
    }
    return estimate && estimate->step_time < limit ? estimate : std::nullopt;
  }
  double preference(const plan::Plan& plan) const override { return bound_of(plan).connections; }
  std::function<bool()> interrupt_when(std::function<bool()> stop) override {
    return std::exchange(options_.stop, std::move(stop));
  }
  std::optional<plan::StepEstimate> exact_step(const plan::Plan& plan,
                                               const plan::Workload& workload) override {
    if (options_.tolerance == 0) {
      return std::nullopt;
    }
    return whole_step(plan, workload, exactly());
  }
  bool has_exact_times() const override {
    return options_.tolerance == 0 || options_.network != NetworkLevel::kFlow;
  }
  std::optional<Duration> exact_collective_time_below(const plan::TransferGraph& graph,
                                                      std::int64_t elements,
                                                      std::int64_t slice_elements,
                                                      Duration limit) override {
    SimulationOptions exact = exactly();
    exact.stop = {};
    return time_below({graph, elements, slice_elements}, limit, exact);
  }

 private:
  SimulationOptions exactly() const {
    SimulationOptions exact = options_;
    exact.tolerance = 0;
    return exact;
  }
  /// What switches add or copy is few flows, over many links each: those that end together would
  /// begin together, and pause together (3 % of the time of two that take turns).
  SimulationOptions options_for(const plan::TransferGraph& graph) const {
    return graph.groups().empty() ? options_ : exactly();
  }
  std::optional<Duration> time_below(const Buffer& buffer, Duration limit,
                                     const SimulationOptions& options) {
    const plan::TransferGraph& graph = buffer.graph;
    require_in_step(options);
    require_same_ranks("schedule '" + graph.name() + "'", graph.rank_count(), topology_);
    const Bound bound = bound_of(graph, buffer.elements, buffer.slice_elements);
    if (bound.in_a_row >= limit) {
      return std::nullopt;
    }
    Engine engine(bound.topology, options);
    const std::uint32_t run = add_alone(engine, index(buffer), graph.name(), topology_);
    if (!engine.run_until(limit.picoseconds(), options.stop)) {
      return std::nullopt;
    }
    const Duration time = bound.applied_to(Duration(engine.run_done(run)));
    return time < limit ? std::optional(time) : std::nullopt;
  }

  plan::StepEstimate whole_step(const plan::Plan& plan, const plan::Workload& workload,
                                SimulationOptions options) {
    options.stop = {};
    require_matching(plan, workload, topology_);
    const Bound bound = bound_of(plan);
    plan::StepEstimate estimate = *estimate_step_below(plan, workload, bound.topology, options,
                                                       indexer_, may_fold_, Duration(INT64_MAX));
    estimate.step_time = bound.applied_to(estimate.step_time);
    return estimate;
  }

  struct Bound {
    Duration in_a_row;                   ///< what many executions take at least on average
    const topology::Topology& topology;  ///< that one is simulated on
    double connections = 0;              ///< BurstBound::connections

    Duration applied_to(Duration simulated) const {
      return scaled(std::max(in_a_row, simulated), 1 + connections);
    }
  };
  Bound bound_of(const plan::TransferGraph& graph, std::int64_t elements,
                 std::int64_t slice_elements) const {
    return without_bursts_ ? taken(burst_bound(graph, elements, slice_elements, topology_))
                           : Bound{Duration(), topology_, 0};
  }
  Bound bound_of(const plan::Plan& plan) const {
    return without_bursts_ ? taken(burst_bound(plan, topology_)) : Bound{Duration(), topology_, 0};
  }
  Bound taken(const BurstBound& bound) const {
    return {bound.in_a_row, bound.are_many ? *without_bursts_ : topology_, bound.connections};
  }

  std::shared_ptr<const GraphIndex> index(const Buffer& buffer) {
    if (may_fold_) {
      if (const auto folded = indexer_.folded({&buffer, 1})) {
        return folded->indices.front();
      }
    }
    return indexer_.index(buffer);
  }

  const topology::Topology& topology_;
  SimulationOptions options_;
  std::optional<topology::Topology> without_bursts_;  ///< where there are bounds by them
  bool may_fold_ = false;
  GraphIndexer indexer_;
};

}  // namespace

CollectiveResult simulate_collective(const plan::TransferGraph& graph, std::int64_t elements,
                                     std::int64_t slice_elements,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options) {
  require_in_step(options);
  require_same_ranks("schedule '" + graph.name() + "'", graph.rank_count(), topology);
  Routing routing(topology, options);
  return run_alone(index_graph(graph, elements, slice_elements, routing), graph.name(), topology,
                   options);
}

CollectiveResult simulate_collective(const plan::RegularSchedule& schedule, std::int64_t elements,
                                     std::int64_t slice_elements,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options) {
  require_in_step(options);
  require_same_ranks("schedule '" + schedule.name() + "'", schedule.rank_count(), topology);
  Routing routing(topology, options);
  std::vector<RouteUse> routes;
  routes.reserve(schedule.lanes().size());
  for (const plan::RegularSchedule::Lane& lane : schedule.lanes()) {
    routes.push_back(routing.route(lane.src, lane.dst));
  }
  const bool may_fold = options.use_symmetry && options.network == NetworkLevel::kFlow &&
                        options.multipath != Multipath::kSpray && options.connections == 1 &&
                        options.disturbances.empty() && !records_tasks(options);
  const std::optional<FoldedSchedule> folded =
      may_fold ? fold(schedule, elements, routes, topology, options) : std::nullopt;
  if (!folded) {
    return run_alone(index_schedule(schedule, elements, slice_elements, std::move(routes)),
                     schedule.name(), topology, options);
  }
  CollectiveResult result =
      run_alone(index_schedule(*folded->schedule, elements, slice_elements, folded->routes),
                schedule.name(), topology, options, folded->stands_for);
  result.copies = folded->copies;
  return result;
}

double usual_tolerance(const topology::Topology& topology) {
  constexpr std::size_t kManyRanks = 96;
  constexpr double kTolerance = 0.01;
  return topology.rank_count() >= kManyRanks ? kTolerance : 0;
}

std::unique_ptr<plan::CostModel> make_cost_model(const topology::Topology& topology,
                                                 const SimulationOptions& options) {
  return std::make_unique<SimulatedCosts>(topology, options);
}

}  // namespace rackrail::sim
