// Copies of a cluster or a workload with some of their speeds changed.
#pragma once

#include <functional>

#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

/// The same vertices, ranks and links under the same ids, so that a plan made for the one runs on
/// the other; `change` may alter everything of a link but its ends.
topology::Topology with_links(const topology::Topology& topology,
                              const std::function<void(LinkId, topology::Link&)>& change);

/// The same for the vertices of ranks; `change` may alter everything but the name.
topology::Topology with_ranks(topology::Topology topology,
                              const std::function<void(topology::Node&)>& change);

/// The workload on devices that compute `factor` times as fast: all its times divided by it.
plan::Workload with_speed(const plan::Workload& workload, double factor);

}  // namespace rackrail::explore
