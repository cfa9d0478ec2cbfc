// Collectives over groups of ranks along rings of few groups within rings of as many: with
// k = a·b groups, of which a follow one another in each of b, everything goes round rings of a, and
// then what those have together round rings of b.
//
// A ring of all groups (group_rings.hpp) is k − 1 hops, one after the other, of which each pays its
// latency; where groups are many that is a large part of the time. Here they are a − 1 + b − 1, and
// a member sends as much: a − 1 shares of the buffer and then b − 1 times a, together k − 1.
// Transfers are fewer, too, so that there may be more pieces. But groups a apart must reach each
// other at full rate, which they do through non-blocking switches. The same with three or more
// factors. Inner rings stay within racks where those have as many groups.
//
// All-gather: from the inner rings to the outer ones. Reduce-scatter: the other way round, and sums
// inside groups before that. All-reduce: one and then the other. Every member of a group passes on
// a line of its own. Pieces follow one another; of what is copied last, and summed first, groups
// are in parts that shrink, or grow, as nothing else is to be sent meanwhile.
//
// Where a line is slower than others, lines carry in proportion to their rates (line_lanes.hpp).
// What its members lend to others goes round as one more piece. Inner rings are short then: at each
// of their many hops all would wait for the slow member.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/algorithms/group_rings.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/collective_form.hpp"

namespace rackrail::planner {

/// How many groups are in the rings, the innermost first; their product is the number of groups.
using GridSides = std::vector<std::size_t>;

/// Those of two and of three factors that have the fewest hops, and of two with shorter inner
/// rings, as each of their hops is a small message; as far as possible such that rings are within
/// racks or of whole ones. None where groups are few, or as many as a prime.
std::vector<GridSides> group_grid_sides(const topology::Topology& topology);
/// Of two: the best (within racks, then of the fewest hops), then ever again the best of those
/// whose inner rings are half as long (rounded up) or shorter.
std::vector<GridSides> two_sides(const topology::Topology& topology);

/// What each line carries in so many pieces; equal loads where none are given (line_lanes.hpp).
/// Preconditions: refuse_group_rings() refuses nothing, codecs lose nothing, at least one piece.
/// Throws PlanError as lanes_for() does.
plan::TransferGraph make_group_grid(plan::Collective what, const ScheduleRequest& request,
                                    const GridSides& sides, std::size_t pieces,
                                    RingWays ways = RingWays::kOne, const LineLanes& lanes = {});

/// How many transfers that has.
std::size_t group_grid_transfers(plan::Collective what, const topology::Topology& topology,
                                 const GridSides& sides, std::size_t pieces,
                                 const LineLanes& lanes = {});

/// In ever more pieces, for one size alone, with uneven loads of lines, if there are any, then with
/// even ones; none where they are refused. The request's topology and router must outlive them.
std::vector<CollectiveForm> group_grid_forms(plan::Collective what, const ScheduleRequest& request);

}  // namespace rackrail::planner
