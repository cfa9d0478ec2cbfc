#include "sim/placed_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/programs.hpp"

namespace rackrail::sim {

plan::TransferGraph placed(const plan::TransferGraph& graph, std::span<const Rank> ranks,
                           std::size_t rank_count, std::span<const LinkId> links) {
  plan::TransferGraph result(graph.name(), graph.collective(), rank_count,
                             {graph.chunk_weights().begin(), graph.chunk_weights().end()});
  for (std::size_t i = 1; i < graph.codecs().size(); ++i) {
    result.add_codec(graph.codecs()[i]);
  }
  std::vector<RouteId> routes;
  for (std::vector<LinkId> route : graph.routes()) {
    for (LinkId& link : route) {
      link = links.empty() ? link : links[link.index()];
    }
    routes.push_back(result.add_route(std::move(route)));
  }
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    plan::Transfer transfer = graph.transfers()[i];
    transfer.src = ranks[transfer.src.index()];
    transfer.dst = ranks[transfer.dst.index()];
    transfer.route = routes[transfer.route.index()];
    result.add_transfer(transfer, graph.dependencies(TransferId(i)));
  }
  for (const plan::TransferGroup& group : graph.groups()) {
    result.add_group(group.first, group.count);
  }
  return result;
}

std::vector<std::uint32_t> add_steps(Engine& engine, const PlacedPlan& placed,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options, int steps) {
  std::vector<std::uint32_t> first_runs;
  for (int step = 0; step < steps; ++step) {
    const bool synchronizes = (step + 1) % options.local_steps == 0 || step + 1 == steps;
    std::vector<std::uint32_t> runs;
    for (std::size_t b = 0; synchronizes && b < placed.indices.size(); ++b) {
      runs.push_back(engine.add_run(
          placed.indices[b], fmt::format("bucket {}", b),
          urgency_of(static_cast<std::uint32_t>(step), placed.plan.buckets[b].priority)));
    }
    if (synchronizes) {
      first_runs.push_back(runs.empty() ? 0 : runs.front());
    }
    const auto first = first_runs.empty() ? 0 : first_runs.back();
    for (std::size_t r = 0; r < placed.ranks.size(); ++r) {
      const Rank rank = placed.ranks[r];
      Program program = program_of(placed.plan, placed.workload,
                                   topology.node(topology.node_of(rank)).device_class, Rank(r),
                                   first, slowdown(options.disturbances, rank, step));
      for (ComputePiece& piece : program.pieces) {
        if (!synchronizes) {
          piece.ready.clear();
        }
      }
      engine.add_step(rank, std::move(program.pieces), runs, program.optimizer);
    }
  }
  return first_runs;
}

std::vector<StepSpan> spans(const Engine& engine, std::span<const Rank> ranks, int steps) {
  std::vector<StepSpan> all;
  for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step) {
    Time start = INT64_MAX;
    Time end = 0;
    Time waited = 0;
    for (const Rank rank : ranks) {
      const Engine::StepTimes& times = engine.steps_of(rank)[step];
      start = std::min(start, times.start);
      end = std::max(end, times.end);
      waited = std::max(waited, times.waited_for_data);
    }
    all.push_back({Duration(start), Duration(end), Duration(waited)});
  }
  return all;
}

Duration until_all_done(const Engine& engine, const std::vector<StepSpan>& steps,
                        std::uint32_t first_run, std::uint32_t end_run) {
  Duration last = steps.back().end;
  for (std::uint32_t run = first_run; run < end_run; ++run) {
    last = std::max(last, Duration(engine.run_done(run)));
  }
  return last;
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
        task.kind != TaskKind::kOverhead && task.kind != TaskKind::kReceive &&
        task.rank.index() < is_meant.size() && is_meant[task.rank.index()]) {
      events.push_back({engine.describe(task), engine.track(task), Duration(activity.start - from),
                        Duration(activity.end - from)});
    }
  }
  return events;
}

}  // namespace rackrail::sim
