// The same schedule with other codecs: most families decide who sends what to whom without looking
// at codecs (ScheduleFamily::depends_on_codecs), so one graph serves for all of them, and an
// expensive one (a forest) is made once.
#pragma once

#include "plan/transfer_graph.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// `graph` with the codecs of the tiers on its transfers instead of its own. O(transfers).
plan::TransferGraph recoded(const plan::TransferGraph& graph, const topology::Topology& topology,
                            const TierCodecs& codecs);

}  // namespace rackrail::planner
