// Transfer graph ↔ the message Schedule of plan.proto; used by plan_message.cpp only.
#pragma once

#include <cstddef>

#include "plan/transfer_graph.hpp"

namespace rackrail::v1 {
class Schedule;
}  // namespace rackrail::v1

namespace rackrail::plan {

void write_schedule(const TransferGraph& graph, v1::Schedule& message);

/// `rank_count` is that of the plan. Throws PlanError or ConfigError with the place in the
/// schedule.
TransferGraph read_schedule(const v1::Schedule& message, std::size_t rank_count);

}  // namespace rackrail::plan
