// Trees of switches as a transfer graph: every pair's share is summed at its root, and spread from
// there, round by round.
//
// All pairs go on side by side. Where they meet on links, even shares would hold up those with more
// to send; so operations may have rates in proportion to what they carry (pacing.hpp), except in
// the last rounds, when links are empty anyway.
#pragma once

#include <cstddef>

#include "plan/transfer_graph.hpp"
#include "planner/packing/switch_packing.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// Of a schedule in one round.
std::size_t transfers_in(const SwitchPacking& packing);

/// What a schedule in so many rounds looks like, by one in a single round, whose bound is a bound
/// of all of them.
FormShape in_rounds(const FormShape& once, const SwitchPacking& packing, std::size_t rounds);

plan::TransferGraph all_reduce_along(const SwitchPacking& packing, const ScheduleRequest& request,
                                     std::size_t rounds, bool has_rates);

}  // namespace rackrail::planner
