#include "sim/placed_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/programs.hpp"

namespace rackrail::sim {

plan::TransferGraph placed(const plan::TransferGraph& graph, std::span<const Rank> ranks,
                           std::size_t rank_count, std::span<const LinkId> links) {
  plan::TransferGraph result(graph.name(), graph.collective(), rank_count,
                             {graph.chunk_weights().begin(), graph.chunk_weights().end()});
  result.set_mechanism(graph.mechanism());
  for (std::size_t i = 1; i < graph.codecs().size(); ++i) {
    result.add_codec(graph.codecs()[i]);
  }
  std::vector<RouteId> routes;
  for (std::size_t i = 0; i < graph.routes().size(); ++i) {
    std::vector<LinkId> route = graph.routes()[i];
    for (LinkId& link : route) {
      link = links.empty() ? link : links[link.index()];
    }
    routes.push_back(result.add_route(std::move(route), graph.rate(RouteId(i))));
  }
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    plan::Transfer transfer = graph.transfers()[i];
    transfer.src = ranks[transfer.src.index()];
    transfer.dst = ranks[transfer.dst.index()];
    transfer.route = routes[transfer.route.index()];
    result.add_transfer(transfer, graph.dependencies(TransferId(i)));
  }
  result.add_groups_of(graph);
  result.add_mutual_sums_of(graph);
  return result;
}

namespace {

bool synchronizes(std::size_t step, const SimulationOptions& options, std::size_t steps) {
  return (step + 1) % static_cast<std::size_t>(options.local_steps) == 0 || step + 1 == steps;
}

/// Puts a step into the engine.
class MakeStep {
 public:
  MakeStep(Engine& engine, PlacedPlan placed, const topology::Topology& topology,
           const SimulationOptions& options, std::size_t steps, std::optional<std::size_t> kept)
      : engine_(engine),
        placed_(std::move(placed)),
        topology_(topology),
        options_(options),
        steps_(steps),
        kept_(kept) {}

  void operator()(std::size_t step) const {
    const bool is_common = synchronizes(step, options_, steps_);
    std::vector<std::uint32_t> runs;
    for (std::size_t b = 0; is_common && b < placed_.indices.size(); ++b) {
      runs.push_back(engine_.add_run(
          placed_.indices[b], fmt::format("bucket {}", b),
          urgency_of(static_cast<std::uint32_t>(step), placed_.plan.buckets[b].priority)));
    }
    if (step == kept_) {
      engine_.keep(runs);
    }
    for (std::size_t r = 0; r < placed_.ranks.size(); ++r) {
      const Rank rank = placed_.ranks[r];
      const Rank of_plan = placed_.plan_ranks.empty() ? Rank(r) : placed_.plan_ranks[r];
      Program program =
          program_of(placed_.plan, placed_.workload, topology_.node(topology_.node_of(rank)),
                     of_plan, runs.empty() ? 0 : runs.front(),
                     slowdown(options_.disturbances, rank, static_cast<int>(step)));
      for (ComputePiece& piece : program.pieces) {
        if (!is_common) {
          piece.ready.clear();
        }
      }
      engine_.add_step(rank, std::move(program.pieces), runs, program.optimizer);
    }
  }

 private:
  Engine& engine_;
  PlacedPlan placed_;
  const topology::Topology& topology_;
  const SimulationOptions& options_;
  std::size_t steps_;
  std::optional<std::size_t> kept_;
};

}  // namespace

std::optional<std::size_t> last_synchronisation(std::size_t step, const SimulationOptions& options,
                                                std::size_t steps) {
  for (std::size_t i = step + 1; i > 0; --i) {
    if (synchronizes(i - 1, options, steps)) {
      return i - 1;
    }
  }
  return std::nullopt;
}

std::uint32_t add_steps(Engine& engine, const PlacedPlan& placed,
                        const topology::Topology& topology, const SimulationOptions& options,
                        std::size_t steps, std::optional<std::size_t> kept) {
  std::uint64_t slice_ends = 0;
  for (const auto& index : placed.indices) {
    slice_ends = std::accumulate(index->slices_at.begin(), index->slices_at.end(), slice_ends);
  }
  const auto local_steps = static_cast<std::size_t>(options.local_steps);
  return engine.add_program(placed.ranks, steps,
                            slice_ends * ((steps + local_steps - 1) / local_steps),
                            MakeStep(engine, placed, topology, options, steps, kept));
}

std::vector<plan::TimelineEvent> timeline(const Engine& engine, Time from, Time to,
                                          std::span<const Rank> ranks) {
  std::vector<bool> is_meant;
  for (const Rank rank : ranks) {
    is_meant.resize(std::max<std::size_t>(is_meant.size(), rank.index() + 1));
    is_meant[rank.index()] = true;
  }
  std::vector<plan::TimelineEvent> events;
  for (const Activity& activity : engine.activities()) {
    const Task& task = activity.task;
    if (activity.end > activity.start && activity.start >= from && activity.start < to &&
        task.kind != TaskKind::kStart && task.kind != TaskKind::kLatency &&
        task.kind != TaskKind::kPaced && task.kind != TaskKind::kOverhead &&
        task.kind != TaskKind::kReceive && task.rank.index() < is_meant.size() &&
        is_meant[task.rank.index()]) {
      events.push_back({engine.describe(task), engine.track(task), Duration(activity.start - from),
                        Duration(activity.end - from)});
    }
  }
  return events;
}

}  // namespace rackrail::sim
