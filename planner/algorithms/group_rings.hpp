// Collectives over groups of ranks (hosts, or racks of single-rank hosts) along one ring of groups
// for each line of members: with k groups of g ranks, the members l of all groups form ring l.
//
// All-gather: every rank's data goes round its ring, and each member that it reaches copies it to
// the rest of its group. Reduce-scatter: a group sums up what it has of a part of the buffer at the
// ring's member, which adds what the ring brings and passes it on. All-reduce is one and then the
// other. Into each group every part comes once, and by the other member for each ring, so where
// groups are identical the links between them carry no more than they must. A rank sends one thing
// after the other, each to the same neighbour, so its link is full from the first hop to the last:
// trees from every rank send all at once, and what comes last is then a large part of it.
//
// Data is in pieces, which follow one another along the ring: while one is sent, the next one
// arrives, and is added. What the inside of groups takes before the first hop and after the last
// one is in finer parts: where a box copies nearly as fast as its NICs bring, what arrives last
// waits for what came before, so parts of copies shrink towards the end. For n ranks, p pieces are
// about p·n·(n − 1) transfers, as many as a forest has in p rounds, and twice that for an
// all-reduce; but two to four pieces are enough.
//
// Groups of several sizes have as many lines as each size divides: rail l is at member l mod g.
//
// Where some lines are slower than others, as by one slow adapter, rails may carry uneven loads
// (line_lanes.hpp): each then carries in proportion to its rate, of all-gathers and reduce-scatters
// also a part of what the members of slower ones own. Its owner copies it to the carrying member of
// its group before it sets out, after that one's own data, and to the rest of the group; sums of it
// come round the ring first, and go from the carrying member on to the owner. So a graph has as
// many transfers between groups as with even loads; lines that carry nothing have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/algorithms/ring_pieces.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/line_lanes.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

/// Why there are no such rings, if so: no groups, groups whose sizes differ too much, codecs that
/// differ by tier or do not survive many hops.
std::optional<std::string> refuse_group_rings(const topology::Topology& topology,
                                              const TierCodecs& codecs);
/// What an element takes of the links of a graph between such groups, all of whose transfers have
/// the same codec. Precondition: it has some.
double bytes_of_an_element(const plan::TransferGraph& graph);

/// Groups in the order of their ring, in which neighbours are near.
std::vector<topology::RankGroup> ring_of_groups(const topology::Topology& topology);
/// How many lines of members they have, at most one more than there may be.
std::size_t ring_lines(const std::vector<topology::RankGroup>& groups);

/// By the rates of lines, in the order in which they are to go, of an all-reduce without any that
/// are lent; none between two groups, or where lines are equally fast. The rate of a line is that
/// of the member that is slowest to the group that it reaches best; one of which some member
/// reaches no group but past a third rank, as where an adapter is dead, carries nothing.
/// Precondition: rings are not refused.
LineLanes uneven_lanes(plan::Collective what, const ScheduleRequest& request);

/// What each line carries in so many pieces, at least one; equal loads where none are given.
/// Precondition: not refused. Throws PlanError for loads of another number of lines, and for an
/// all-reduce whose lines carry data of others, as nobody owns what it begins with.
plan::TransferGraph make_group_rings(plan::Collective what, const ScheduleRequest& request,
                                     std::size_t pieces, RingWays ways = RingWays::kOne,
                                     const LineLanes& lanes = {});

/// In one piece, and in ever more as long as the request allows, with uneven loads of lines, if
/// there are any, then with even ones; none where they are refused. The request's topology and
/// router must outlive them.
std::vector<CollectiveForm> group_ring_forms(plan::Collective what, const ScheduleRequest& request);

}  // namespace rackrail::planner
