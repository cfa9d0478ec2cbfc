// A plan on some of a cluster's ranks, as programs and collectives of the engine; for sim/*.cpp
// only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/engine.hpp"
#include "sim/graph_index.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

/// All that is referred to must outlive it.
struct PlacedPlan {
  const plan::Plan& plan;
  const plan::Workload& workload;
  std::span<const Rank> ranks;                             ///< of the cluster, by rank of the plan
  std::vector<std::shared_ptr<const GraphIndex>> indices;  ///< by bucket, over the cluster's ranks
};

/// `graph` between these ranks of a cluster of `rank_count`. `links` are the cluster's, by link of
/// the cluster that pinned routes are for; none where that is the same.
plan::TransferGraph placed(const plan::TransferGraph& graph, std::span<const Rank> ranks,
                           std::size_t rank_count, std::span<const LinkId> links);

/// Puts `steps` steps into the engine. Returns the number of each synchronisation's first
/// collective; those of one follow each other by bucket.
std::vector<std::uint32_t> add_steps(Engine& engine, const PlacedPlan& placed,
                                     const topology::Topology& topology,
                                     const SimulationOptions& options, int steps);

/// simulate_step() where the indices of earlier steps are of use; `indexer` is of the same topology
/// and multipath.
StepResult simulate_step(const plan::Plan& plan, const plan::Workload& workload,
                         const topology::Topology& topology, const SimulationOptions& options,
                         GraphIndexer& indexer);

/// Each step, from the first of these ranks that starts to the last that ends.
std::vector<StepSpan> spans(const Engine& engine, std::span<const Rank> ranks, int steps);

/// Until the last of these steps has ended and these collectives are done: with a staleness, those
/// of the last steps may end later than they.
Duration until_all_done(const Engine& engine, const std::vector<StepSpan>& steps,
                        std::uint32_t first_run, std::uint32_t end_run);

/// Recorded tasks that started at `from` or later and before `to`, with times since `from`.
std::vector<plan::TimelineEvent> timeline(const Engine& engine, Time from, Time to,
                                          std::span<const Rank> ranks);

}  // namespace rackrail::sim
