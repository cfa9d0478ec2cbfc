// All-reduces along rings of groups of which some are slow on some lines (uneven_lines.hpp).
//
// Lines without slow groups go as in group_rings.hpp: they reduce, then gather, in a few pieces. A
// leaf sends while its trees reduce and receives while they gather; so that its link is full in
// both directions, a line with leaves goes in waves, and while one is gathered, the next one is
// reduced. A leaf's messages leave a few at a time, or all of a wave would be there at its end
// only.
//
// Each move has its time in a schedule of even steps, and moves are in that order. Between two
// ranks of a group there are sums of one line and copies of another, which must not wait for each
// other (rule 5 of plan/transfer_graph.hpp): sums for leaves come before any copy of a ring, copies
// for leaves after all sums of rings. And a rank sends what is summed in its group no long before
// it is needed: when what it passed on before has left.
#pragma once

#include <vector>

#include "planner/collective_form.hpp"
#include "planner/schedule_family.hpp"

namespace rackrail::planner {

/// In ever more pieces, as the request allows for three times as many transfers, at most 600,000;
/// none where there are no uneven_lines() or group rings are refused. The fewest pieces are at
/// least 4·n·(n − 1) transfers on n ranks, so by the limits of collective_forms.cpp there are none
/// from about 220 ranks on but in searches of one size, and there none from about 390 on. The
/// request's topology and router must outlive them.
std::vector<CollectiveForm> uneven_ring_forms(const ScheduleRequest& request);

}  // namespace rackrail::planner
