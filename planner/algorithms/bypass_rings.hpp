// All-reduces along rings of groups of which members have different rates (bypass_trees.hpp): a
// slow adapter in some hosts, on rails that do not meet or do.
//
// The pieces are summed along such trees, and then copied along others, which are the mirror images
// of trees for the ring the other way round: messages go the same way then as before, to the same
// member of the next group, so that no copy holds up a sum. Inside a group a piece is summed at the
// member that sends it on, and copied from the member that it came to, so it crosses no more links
// there if it changes its line. What is summed first at a root is copied first: it is there before
// the sums are done by as much as a root's share takes.
//
// Where a hop past a slow member has less than its share of the sender's link, its route has a rate
// (rule 8 of plan/transfer_graph.hpp), if the request allows for that.
//
// Moves are in the order of the trees' times. A sum inside a group is made a little before it is
// sent on, and not long before: else the devices would be busy with those of later ones while what
// arrives waits to be added. At the root it has time until it is copied, and holds up others that
// have not if its turn is before the piece is there (rule 5 of plan/transfer_graph.hpp).
#pragma once

#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/collective_form.hpp"

namespace rackrail::planner {

/// In ever more pieces, as the request allows; none where group rings are refused, groups are two,
/// no member of a line is slower than another, or a group does not reach the next one. The fewest
/// pieces are about 8·n·(n − 1) transfers on n ranks: by the limits of collective_forms.cpp there
/// are none from 96 ranks on but in searches of one size, in which they may be as many as a plan
/// can have. Never any on more than 512 ranks. The request's topology and router must outlive them.
std::vector<CollectiveForm> bypass_ring_forms(const ScheduleRequest& request);

}  // namespace rackrail::planner
