// Collectives over groups in groups: ranks of hosts of racks of pods.
//
// At each level the groups of a group are its members. The buffer has one chunk for each choice of
// a member at each level, so a chunk is a digit per level, that of the innermost level first. A
// group sums a chunk up at the member that its digit of the level says, and there at the rank where
// that member has it: first among ranks, then among ever larger groups, and the result goes back
// the same way. So the uplink of each of k racks carries 2(k−1)/k of the buffer, however many hosts
// are in them, where h hosts per rack that all talk to each other would have it carry h times as
// much. In each exchange ranks talk to those at the same place in the other members, which are on
// the same rail.
//
// What a rank sends to another at one level are neighbouring chunks, so one transfer: with k_i
// members at level i a rank sends 2·Σ(k_i − 1) in all. Levels use different links, but a transfer
// of many chunks starts when all that it waits for has arrived whole; so the buffer is also sent in
// rounds, which follow one another through the levels. For a large collective alone the first and
// the last rounds are smaller, so that links of the other levels wait less for them, and in an
// all-reduce sums of later rounds are made between the copies of earlier ones.
//
// An all-gather is the way back alone, a reduce-scatter the way there, between ranks that each own
// as many chunks.
//
// Groups of several sizes at a level have a digit with as many values as each size divides, so that
// members have equally many, unless that makes far more transfers; then some have more than others.
//
// With a codec between groups sums are encoded at each level, so it must survive several hops; what
// comes back is encoded once, as such codecs work element by element.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"

namespace rackrail::planner {

/// In ever more rounds, within the request's limits, of one size alone before these also in rounds
/// of different sizes, in which sums and copies take turns; none where there are fewer than three
/// levels, where a codec of the request does not survive several hops, or where one round is too
/// large.
std::vector<plan::TransferGraph> nested_all_reduces(const ScheduleRequest& request);

/// The same of any collective; none of an all-gather or a reduce-scatter where shares would differ.
std::vector<plan::TransferGraph> nested_collectives(plan::Collective what,
                                                    const ScheduleRequest& request);

}  // namespace rackrail::planner
