// What a rank computes in a step of a plan; for sim/*.cpp only.
#pragma once

#include <string_view>
#include <vector>

#include "sim/engine.hpp"

namespace rackrail::sim {

/// Throws PlanError when plan and workload do not belong together.
void require_matching(const plan::Plan& plan, const plan::Workload& workload);
/// The same, and when the topology has another number of ranks.
void require_matching(const plan::Plan& plan, const plan::Workload& workload,
                      const topology::Topology& topology);

struct Program {
  std::vector<ComputePiece> pieces;
  Duration optimizer;
};

/// Passes without communication first (accumulation), then forward, then backward cut at the
/// moments at which buckets become ready: bucket b makes run `first_run` + b ready. `rank` is the
/// plan's, on this device; all takes `factor` times as long as planned.
Program program_of(const plan::Plan& plan, const plan::Workload& workload,
                   const topology::Node& device, Rank rank, std::uint32_t first_run, double factor);

}  // namespace rackrail::sim
