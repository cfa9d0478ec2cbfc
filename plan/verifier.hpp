// Symbolic execution of transfer graphs: is the collective right, whatever the numbers are?
//
// Each (rank, chunk) holds a set of contributions (one bit per rank) and a value identity: a hash
// of the expression that made it, codecs included, with a + b = b + a and nothing else, as in
// floating point. Transfers are applied in id order, which the rules of transfer_graph.hpp make
// equivalent to every legal execution, at every buffer size. Checked:
//  - a reduction never adds a contribution twice, nothing is sent before there is something to
//  send,
//    and every rank (every owner, for reduce-scatter) ends with all contributions;
//  - all ranks end with the same value identity: bit-identical results, codecs or not;
//  - dependencies are transfers that the sender can see. Ids are a topological order by
//  construction,
//    and the other orders that the rules impose (of sends by id, of additions by id) follow the ids
//    too: so there is no cycle and no deadlock;
//  - every two accesses to one chunk of one rank of which one writes are ordered
//  (access_order.hpp);
//  - what a plan's buckets say of their codecs is what their schedules' transfers have;
//  - routes are connected paths of the topology from src to dst.
// Cost: chunks are executed one after another, so memory is ranks²/8 bytes; time is O(transfers ·
// chunks per transfer · ranks / 64) plus the ordering check. A ring of 256 ranks (130,560
// transfers) takes some tenths of a second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

/// Pairs of a transfer and a chunk (or chunks that all transfers move together): graphs with more
/// are not verified, which is a problem of theirs.
inline constexpr std::uint64_t kMostVerifiedMovements = std::uint64_t{1} << 28U;

struct VerifyReport {
  std::vector<std::string> problems;  ///< empty when right; at most 16, then a count
  std::size_t transfers = 0;
  std::size_t depth = 0;  ///< transfers in the longest chain of dependent ones
  /// Most transfers into one rank at the same depth, which may all be in flight at once.
  std::size_t largest_fan_in = 0;
  bool ok() const { return problems.empty(); }
};

/// `topology` may be null: routes are then not checked.
[[nodiscard]] VerifyReport verify(const TransferGraph& graph, const topology::Topology* topology);

/// All schedules; buckets cover `workload` (if given) exactly once; the cluster's digest matches
/// `topology` (if given). Problems name the schedule or bucket; the figures are sums over the
/// schedules (transfers) and the largest of them (depth, fan-in).
[[nodiscard]] VerifyReport verify(const Plan& plan, const topology::Topology* topology,
                                  const Workload* workload);

}  // namespace rackrail::plan
