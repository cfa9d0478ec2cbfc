// A transfer graph as stages, for devices: what a whole group of ranks does at once becomes a
// collective, everything else becomes rounds of messages.
//
// Model. Libraries of collectives take no slices that come when they come, as runtime/slice_engine
// does: all ranks enqueue the same calls in the same order. So the graph is cut into phases, and
// these into stages, the same for every rank.
//
// Phases. Transfers inside a group of ranks have even phases, those between groups odd ones; each
// has the smallest that is not before that of anything it waits for: its dependencies, the addition
// into the same chunk before it (rule 4 of plan/transfer_graph.hpp), the transfer whose bytes it
// sends again (rule 6). The transfers of a mutual sum (rule 9) share a phase and a round. Since
// accesses that conflict are ordered by dependencies, phases one after the other are a legal
// execution.
//
// Collectives. What the transfers of one phase inside one group do to a chunk is found by executing
// them on sets of contributions: if all members end with all contributions, it was an all-reduce;
// if one does, and what is left at the others is overwritten before it is read, a reduction to that
// one; if all end with the contribution of one, a broadcast. It does not matter which transfers did
// it: a ring is recognised as an exchange of all with all is. Lossy transfers are none of that, and
// neither is a chunk that moves together with one that is not.
//
// A collective adds in an order of its own, as groups of rule 7 do. So where two places of a graph
// work out one sum, a last pass follows which expressions end where, with an unknown one for each
// collective sum, and takes no sum for a collective unless all ranks still end with the same bits.
//
// Rounds. What remains of a phase is divided into rounds: a transfer comes one after what it waits
// for, but additions into one chunk may share a round (they are applied in the order of ids), and
// so may transfers of the same range from the same rank. In a round everything is encoded, then
// sent, then decoded.
//
// O(transfers · chunks per transfer · ranks per group / 64).
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::runtime {

/// Ranks joined by a fast tier, such as the GPUs of a host. Every rank is in one group.
using RankGroups = std::vector<std::vector<Rank>>;

enum class StageKind : std::uint8_t {
  kAllReduce,  ///< all members of a group end with the sum
  kReduce,     ///< the root does; the other members' values are not needed any more
  kBroadcast,  ///< all members end with what the root has
  kExchange,   ///< messages from rank to rank
};

/// Neighbouring chunks to which a collective does the same.
struct StagePart {
  std::uint32_t chunk_begin = 0;
  std::uint32_t chunk_count = 1;
  std::uint32_t root = 0;  ///< position in the group; 0 of an all-reduce
  bool operator==(const StagePart&) const = default;
};

struct Stage {
  StageKind kind = StageKind::kExchange;
  std::uint32_t phase = 0;
  std::uint32_t group = 0;            ///< of collectives: index into the groups
  std::vector<StagePart> parts;       ///< of collectives: chunks ascending
  std::vector<TransferId> transfers;  ///< of exchanges: ids ascending
};

/// The stages of a graph that the verifier finds right, in an order in which every rank may do its
/// part of them. Throws PlanError unless `groups` have each rank of the graph once.
std::vector<Stage> find_stages(const plan::TransferGraph& graph, const RankGroups& groups);

}  // namespace rackrail::runtime
