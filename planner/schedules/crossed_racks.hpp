// All-reduce over racks of hosts of which some lines are narrow between racks (rails with a lost
// cable): what a rack has summed up on such a line crosses on another one.
//
// Model. Members l of all hosts form rail l (a line, as in group_rings.hpp). A chunk is summed in
// each host at its member of the chunk's line, in each rack at that of one host, and across racks
// in one of them; the result goes back the same way. With h hosts in each of k racks an adapter
// carries (h − 1)/h and (k − 1)/(h·k) of its line each way twice, an uplink the latter for each of
// the hosts. Where a line's uplinks are narrow, less of it can cross than its adapters sum up
// within the racks: were its share of the buffer as small as that, they would idle, and those of
// the other lines carry more. So some of its chunks cross on other lines' adapters. In the host
// that has the rack's sum it goes on to the member of that line, and the result comes back from
// there: two more arcs inside a host, whose links are wide. The shares of lines, and of the paths
// that each takes, are a linear program (part_loads.hpp).
//
// The buffer goes in rounds that grow and shrink again (nested_groups.hpp), and copies take their
// turns some rounds behind sums. In each round a chunk takes the way that lacks most of its share.
#pragma once

#include <vector>

#include "planner/collective_form.hpp"
#include "planner/schedule_family.hpp"

namespace rackrail::planner {

/// In ever more rounds, as the request allows; none where there are no racks of hosts of one size,
/// no line is narrower between racks than others, or all have room, where a codec is lossy, or in a
/// build without a solver. The request's topology and router must outlive them.
std::vector<CollectiveForm> crossed_rack_forms(const ScheduleRequest& request);

}  // namespace rackrail::planner
