// The multi-dimensional exchange: reduce-scatter, all-gather and all-reduce level by level of a
// hierarchy of ranks. What is called hierarchical, two-level, rail-optimised rings, rings of rings,
// the bucket algorithm of tori and Rabenseifner's halving are this with other levels and methods.
//
// Model. The buffer has one chunk for each choice of a member at each level: a chunk is a digit per
// level, that of the lowest level first and most significant. A group sums a chunk up at the member
// that its digit of the level says, and there at the rank where that member has it: first among
// ranks, then among ever larger groups; the result goes back the same way. So with groups of n_l
// members at level l, a rank sends (1 − 1/n_0) + (1 − 1/n_1)/n_0 + … of the buffer each way, which
// is all that must leave each level's groups, and at each level it talks to those at the same place
// in the other members: those of its rail.
//
// How members exchange (method):
//   direct  each sends each other one what that owns. One hop; (n − 1) messages at once.
//   ring    what a member owns is summed on its way around all others. n − 1 hops; each talks to
//           one other only, so links are full from the first hop to the last.
//   path    the same without the link that closes the ring, from both ends to the owner.
//   tree    two chunks for all, each along one of two binary trees (binary_tree.hpp): as many
//           messages as members, in log n hops; of reductions and broadcasts, so all-reduces only.
//
// Rounds are such exchanges of parts of the buffer that follow one another through the levels, as a
// transfer starts only when all that it waits for is there. The first and the last ones are
// smaller: while they are at the first or the last level, links of the others are idle. Around one
// ring of groups rounds are equal, as each of its steps costs a message; there what comes last is
// cut into ever smaller parts at the last step, as groups still have to copy it inside.
//
// Levels in steps. What goes around a ring arrives step by step, and may be passed on along the
// level below as it comes instead of at the end (ExchangeLevel::growth); sums of a level below are
// made when the ring is about to need them. So copies inside a host go on while NICs receive.
//
// Rails. Members of groups of several sizes share rails: rail l is at member l mod n. Where some
// rails are slower than others, they carry unequal parts (groups/line_lanes.hpp); what a rank owns
// may then be carried by another one of its group.
//
// References. Two levels of rings: Cho et al., "BlueConnect" (MLSys 2019); tori: Jain and
// Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects" (ICS
// 2010); halving and doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH" (2005); trees: Sanders, Speck, Träff (2009).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/groups/line_lanes.hpp"
#include "planner/groups/rank_hierarchy.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

enum class Way : std::uint8_t { kDirect, kRing, kPath, kTree };

struct ExchangeLevel {
  Way way = Way::kDirect;
  /// What the next level brings is passed on along this one in blocks of its steps: each block so
  /// many times as long as the one before; 1: every step by itself; 0: all at once.
  std::uint32_t growth = 0;
  /// Of its digit; fewer than members may own parts where slices of these pipeline. 0: as many as
  /// members, or as each of several sizes divides.
  std::uint32_t values = 0;
};

/// A part of the buffer.
struct ExchangePart {
  RankHierarchy hierarchy;
  std::vector<ExchangeLevel> levels;   ///< as many as the hierarchy has
  LineLanes lanes;                     ///< of its groups of the lowest level; none: even ones
  std::vector<std::uint32_t> weights;  ///< by chunk of a round; none: every rank owns as much
  std::uint32_t weight = 1;            ///< of all of it, beside other parts
  bool is_back = false;                ///< rings go the other way round
};

struct Exchange {
  std::string name;       ///< of the graph
  std::string mechanism;  ///< of the graph, without its rounds
  std::vector<ExchangePart> parts;

  /// Whether rounds take turns, in which copies are some rounds behind sums. Else all sums come
  /// before all copies: where there are rings, whose links are full anyway.
  bool takes_turns() const;
  /// Whether it goes around one ring of groups.
  bool is_ring_of_groups() const;
};

/// Why an exchange cannot be, in words for a user: chunks that would be too many; an all-gather or
/// reduce-scatter in which ranks would own unequal parts.
std::optional<std::string> exchange_refusal(const Exchange& exchange, plan::Collective what);

/// Weights of rounds: a few at either end are smaller.
std::vector<std::uint32_t> round_sizes(std::size_t rounds);

/// `alternate`: every other round goes the other way round its rings. Precondition: not refused.
plan::TransferGraph make_exchange(const Exchange& exchange, plan::Collective what,
                                  const ScheduleRequest& request, std::size_t rounds = 1,
                                  bool alternate = false);

/// How many chunks a round has.
std::size_t exchange_chunks(const Exchange& exchange);

/// How many transfers that has; more than any graph may have where chunks are too many.
std::uint64_t exchange_transfers(const Exchange& exchange, plan::Collective what,
                                 std::size_t rounds = 1, bool alternate = false);

/// In these numbers of rounds, as far as the request's limits allow: known by the first one, and
/// made when they are looked at. The request's topology and router must outlive them.
std::vector<CollectiveForm> exchange_forms(const Exchange& exchange, plan::Collective what,
                                           const ScheduleRequest& request,
                                           std::span<const std::size_t> rounds,
                                           bool alternate = false);

}  // namespace rackrail::planner
