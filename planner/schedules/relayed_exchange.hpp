// All-reduce between two groups of ranks (hosts) of which some members have a slow way to the other
// group, or none (a dead adapter).
//
// Model. Members l of both groups form rail l (a line, as in group_rings.hpp); a part of the buffer
// is summed at member l of each group, across at one of the two, and goes back the same way. So
// each member adds up its share of the buffer. Where the pair of members is slow, a pair of another
// line can carry what both have summed: it goes on inside its group to the member of that line,
// which adds what it has itself, across, and on inside the other group to its member l, where the
// other group's members have sent what they have. Such a part crosses as many links inside groups
// and between them as any other (15 for each half of an all-reduce of 16 ranks), so the members
// with slow paths do their part of the additions. Else the others' links inside groups would bind.
// The shares of lines, and of the paths that each takes, are a linear program (part_loads.hpp).
//
// Parts are in pieces of which one follows the other along these four or six hops. The copies of a
// piece take their turns some pieces behind its sums: links inside groups, which both cross, are
// busy with sums until the first pieces are there to be copied, and do not wait at the end for long
// as the last pieces are smaller.
#pragma once

#include <vector>

#include "planner/collective_form.hpp"
#include "planner/schedule_family.hpp"

namespace rackrail::planner {

/// In ever more pieces, as the request allows; none where there are not two groups, group rings are
/// refused, no pair of a line is slower than another's, or in a build without a solver. The
/// request's topology and router must outlive them.
std::vector<CollectiveForm> relayed_exchange_forms(const ScheduleRequest& request);

}  // namespace rackrail::planner
