// A plan before anything is planned: of which cluster it is, and of which ranks.
#pragma once

#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

/// Without schedules and buckets, which the caller adds; a batch of one sample per rank. `name` is
/// left to the caller, too.
Plan empty_plan(const topology::Topology& cluster);

}  // namespace rackrail::plan
