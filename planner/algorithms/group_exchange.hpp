// All-reduce over groups of ranks in which members exchange chunks with one hop per phase: what the
// `hierarchical` family does (hierarchical.cpp says how chunks are owned).
//
// What follows one after the other on a route is in the order of transfers, all slices of one
// before the next (rule 5 of plan/transfer_graph.hpp). With every chunk in one piece each phase is
// over before the next one has much of a route: when all is summed up and back in every group, an
// eighth of the time or more goes to what is then still to be copied inside. Rounds are such
// all-reduces of parts of the buffer that overlap: while one is exchanged across groups the next
// two are summed inside, and the one before is copied across. Between rounds nothing waits, but in
// turns on routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

/// How many lines of members the groups have.
std::size_t exchange_lines(const std::vector<topology::RankGroup>& groups);
/// Transfers of the chunks of one line, in one round.
std::size_t exchange_transfers_per_line(const std::vector<topology::RankGroup>& groups);

/// `weights` are those of chunks, line by line and in each by the owning group, a chunk of weight 0
/// is left out; none: all equal. Precondition: `rounds` is at least 1.
plan::TransferGraph make_group_exchange(const ScheduleRequest& request,
                                        const std::vector<std::uint32_t>& weights = {},
                                        std::size_t rounds = 1);

/// In two rounds, and in ever more as long as the request allows: beside make_group_exchange() in
/// one, of the same weights, which is like `one`, with its bound. The request's topology and router
/// must outlive them.
std::vector<CollectiveForm> group_exchange_forms(const ScheduleRequest& request,
                                                 const FormShape& one,
                                                 const std::vector<std::uint32_t>& weights = {});

}  // namespace rackrail::planner
