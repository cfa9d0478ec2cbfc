// Placement: of more hosts than a job needs, which to take, and in which order to number its ranks.
//
// Objective, in this order:
//   1. the exact bound of a reduce-scatter and an all-gather one after the other
//      (topology::reducescatter_bound, allgather_bound) on what the job would have: the chosen
//      hosts and all switches. A forest of trees reaches it (ALGORITHMS: Zhao et al., "ForestColl",
//      arXiv 2402.06787), so it is what the job can get and not only what it cannot exceed.
//   2. the peak of the devices together, by data sheets (plan/device_class.hpp), where the class of
//      each is known there,
//   3. fewer racks, 4. fewer groups of switches (planner/placement/blocks.hpp), 5. fewer hosts on
//   the
//      lesser side of each group's uplinks, which the job then shares with others less, and
//   6. the hosts that are listed first.
//
// Exact by enumerating one choice of each kind (planner/placement/blocks.hpp) where these are few,
// else by exchanging hosts as long as that improves, from several starts. For more than some tens
// of ranks each host counts as one vertex behind what its GPUs can together send and receive, with
// the narrowest GPU as a bound of its own: only cuts through the inside of several hosts are then
// missed, and the figures that are returned are those of the whole graph again. No clock and no
// random number: the same input gives the same placement.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct PlacementOptions {
  std::size_t hosts = 1;
  /// On every host as many; by default the most that so many hosts have each, or where all hosts
  /// are taken, all that each has.
  std::optional<std::size_t> gpus_per_host;
};

struct PlacedHost {
  std::string name;
  std::string rack;                ///< empty where there are none
  std::vector<std::string> ranks;  ///< vertex names, in rank order
  std::size_t unused_ranks = 0;    ///< ranks of the host that are not taken
};

/// A host that has too few ranks for this job.
struct IneligibleHost {
  std::string name;
  std::size_t ranks = 0;
};

struct Placement {
  std::vector<PlacedHost> hosts;  ///< in rank order: hosts of a rack side by side
  topology::Topology cluster;     ///< the chosen hosts and all switches, its ranks in that order
  Bandwidth allgather;            ///< algbw of the exact bounds on that cluster
  Bandwidth reducescatter;
  Bandwidth allreduce;  ///< topology::joint_allreduce_bound
  std::size_t racks = 0;
  bool is_exact = false;                   ///< every kind of choice was compared
  std::size_t compared = 0;                ///< choices whose value was computed
  std::size_t candidates = 0;              ///< hosts with enough ranks
  std::size_t least_ranks = 0;             ///< what is enough
  std::vector<IneligibleHost> ineligible;  ///< the others, in the order of their first ranks
  /// Of the candidates' ranks, each once, by name; empty for a rank without. Where there are
  /// several, a choice that is worse for the network may compute faster.
  std::vector<std::string> device_classes;
};

/// Throws ConfigError when there are not so many such hosts, less than two ranks would be placed,
/// or no choice is connected.
Placement place(const topology::Topology& topology, const PlacementOptions& options);

}  // namespace rackrail::planner
