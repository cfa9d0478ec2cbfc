// A forest as a transfer graph: trees broadcast their share of the data, or sum it up, in rounds
// (pipeline_writer.hpp).
#pragma once

#include <string_view>

#include "plan/transfer_graph.hpp"
#include "planner/packing/forest.hpp"
#include "planner/packing/pacing.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// Every rank starts with its part, 1/n of the buffer, and ends with all of them.
plan::TransferGraph all_gather_along(const Forest& broadcast, const ScheduleRequest& request,
                                     std::size_t rounds, Pace pace = Pace::kUrgent,
                                     std::string_view name = "forest");

/// Every rank starts with a buffer of its own and ends with the sum of its part. `reduction` is a
/// forest made with `reversed`.
plan::TransferGraph reduce_scatter_along(const Forest& reduction, const ScheduleRequest& request,
                                         std::size_t rounds, Pace pace = Pace::kUrgent,
                                         std::string_view name = "forest");

/// A reduce-scatter and an all-gather, each part of which follows as soon as it is there. `name` is
/// the graph's.
plan::TransferGraph all_reduce_along(const Forest& reduction, const Forest& broadcast,
                                     const ScheduleRequest& request, std::size_t rounds,
                                     Pace pace = Pace::kUrgent, std::string_view name = "forest");

/// What a schedule in so many rounds looks like, by one in a single round and in stages, whose
/// bound is a bound of all of them. Either forest may be null.
FormShape in_rounds(const FormShape& one, const Forest* reduction, const Forest* broadcast,
                    std::size_t rounds, Pace pace);

}  // namespace rackrail::planner
