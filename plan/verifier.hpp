// Symbolic execution of transfer graphs: is the collective right, whatever the numbers are?
//
// Each (rank, chunk) holds a set of contributions (one bit per rank) and a value identity (a hash
// of the expression that made it, codecs included). Transfers are applied in id order, which the
// rules of transfer_graph.hpp make equivalent to every legal execution. Checked: a reduction never
// adds a contribution twice; every rank ends with all of them and with the same value identity
// (bit- identical results); dependencies are smaller ids that the sender can see (so there is no
// cycle and no deadlock); every two accesses to one chunk of one rank of which one writes are
// ordered, except additions among themselves; routes are connected paths of the topology from src
// to dst. Cost: O(transfers · chunks per transfer · ranks / 64) plus the ordering check.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

struct VerifyReport {
  std::vector<std::string> problems;  ///< empty when right; at most 16, then a count
  std::size_t transfers = 0;
  std::size_t depth = 0;           ///< longest chain of dependent transfers
  std::size_t largest_fan_in = 0;  ///< most transfers into one rank that may be in flight at once
  bool ok() const { return problems.empty(); }
};

/// `topology` may be null: routes are then not checked.
[[nodiscard]] VerifyReport verify(const TransferGraph& graph, const topology::Topology* topology);

/// All schedules; buckets cover `workload` (if given) exactly once; the cluster's digest matches
/// `topology` (if given). Problems name the schedule or bucket.
[[nodiscard]] VerifyReport verify(const Plan& plan, const topology::Topology* topology,
                                  const Workload* workload);

}  // namespace rackrail::plan
