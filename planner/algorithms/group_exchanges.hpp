// Exchanges over groups of ranks (hosts, or racks of single-rank hosts): inside groups everybody
// with everybody, across them the members on one line, which is a rail where hosts have one per
// device. What the `hierarchical` family chooses from.
//
// Across groups in one hop, or along a ring, whose links are full from the first hop to the last
// but which has as many hops as groups; or along rings of few groups within rings of as many: with
// k = a·b groups, everything goes round rings of b, and then of a, which are a − 1 + b − 1 hops and
// send as much. Groups a apart must reach each other at full rate then, as through non-blocking
// switches. Sides that keep rings within racks, or of whole ones, come first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/algorithms/exchange.hpp"
#include "planner/groups/line_lanes.hpp"
#include "planner/pipeline/schedule_request.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

/// Why there are no rings of groups, if so: no groups, codecs that differ by tier or do not survive
/// many hops.
std::optional<std::string> refuse_group_rings(const topology::Topology& topology,
                                              const TierCodecs& codecs);

/// Groups in the order of their ring, in which neighbours are near.
std::vector<topology::RankGroup> ring_of_groups(const topology::Topology& topology);
/// How many lines of members they have: as many as each size divides, at most one more than 64.
std::size_t ring_lines(const std::vector<topology::RankGroup>& groups);

/// By the rates of lines, in the order in which they are to go, of an all-reduce without any that
/// are lent; none between two groups, or where lines are equally fast. The rate of a line is that
/// of the member that is slowest to the group that it reaches best; one of which some member
/// reaches no group but past a third rank, as where an adapter is dead, carries nothing.
LineLanes uneven_lanes(plan::Collective what, const ScheduleRequest& request);

/// In one hop across groups. Weights are those of chunks, line by line and in each by the owning
/// group; none: equal ones.
Exchange direct_exchange(const topology::Topology& topology,
                         const std::vector<std::uint32_t>& weights = {});

/// How many groups are in the rings, the innermost first; their product is the number of groups.
using GridSides = std::vector<std::size_t>;

/// Along one ring, or rings within rings.
Exchange ring_exchange(const topology::Topology& topology, const GridSides& sides,
                       const LineLanes& lanes = {});

/// Along all levels that the cluster has, directly at each.
Exchange level_exchange(const topology::Topology& topology);

/// Those of two and of three factors that have the fewest hops, and of two with shorter inner
/// rings, as each of their hops is a small message. None where groups are few, or as many as a
/// prime.
std::vector<GridSides> group_grid_sides(const topology::Topology& topology);
/// Of two: the best (within racks, then of the fewest hops), then ever again the best of those
/// whose inner rings are half as long (rounded up) or shorter.
std::vector<GridSides> two_sides(const topology::Topology& topology);

}  // namespace rackrail::planner
