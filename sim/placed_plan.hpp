// A plan on some of a cluster's ranks, as programs and collectives of the engine; for sim/*.cpp
// only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/engine.hpp"
#include "sim/graph_indexer.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

/// All that is referred to must outlive it.
struct PlacedPlan {
  const plan::Plan& plan;
  const plan::Workload& workload;
  std::span<const Rank> ranks;                             ///< of the cluster, by rank of the plan
  std::vector<std::shared_ptr<const GraphIndex>> indices;  ///< by bucket, over the cluster's ranks
  /// Where `ranks` are some that stand for all of the plan's: which of the plan's they are, in
  /// their order. None: all of them.
  std::vector<Rank> plan_ranks = {};
};

/// `graph` between these ranks of a cluster of `rank_count`. `links` are the cluster's, by link of
/// the cluster that pinned routes are for; none where that is the same.
plan::TransferGraph placed(const plan::TransferGraph& graph, std::span<const Rank> ranks,
                           std::size_t rank_count, std::span<const LinkId> links);

/// The last step up to this one of `steps` in which ranks synchronise, if there is one.
std::optional<std::size_t> last_synchronisation(std::size_t step, const SimulationOptions& options,
                                                std::size_t steps);

/// Puts `steps` steps into the engine as a program, whose number is returned. Collectives of the
/// step `kept` can be asked for after the simulation (Engine::keep), by bucket. Topology and
/// options must outlive it.
std::uint32_t add_steps(Engine& engine, const PlacedPlan& placed,
                        const topology::Topology& topology, const SimulationOptions& options,
                        std::size_t steps, std::optional<std::size_t> kept = std::nullopt);

/// What simulate_step() estimates, none where that is no less than `limit` (which is found sooner)
/// or options.stop said so before it was known. For where the indices of earlier steps are of use;
/// `indexer` is of the same topology and multipath. With `may_fold`, only the ranks that stand for
/// all are simulated where plan and cluster are symmetric (layout_turns.hpp).
std::optional<plan::StepEstimate> estimate_step_below(
    const plan::Plan& plan, const plan::Workload& workload, const topology::Topology& topology,
    const SimulationOptions& options, GraphIndexer& indexer, bool may_fold, Duration limit);

/// Recorded tasks that started at `from` or later and before `to`, with times since `from`.
std::vector<plan::TimelineEvent> timeline(const Engine& engine, Time from, Time to,
                                          std::span<const Rank> ranks);

}  // namespace rackrail::sim
