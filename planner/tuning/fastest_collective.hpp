// The fastest way in which a family carries out one collective of one size alone, among all its
// variants and slices (collective_forms.hpp). Takes seconds where ranks are very many.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/request/decisions.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct CollectiveOfOneSize {
  plan::Collective what = plan::Collective::kAllReduce;
  std::int64_t elements = 0;  ///< at least one
  const topology::Topology& topology;
  TierCodecs codecs;
  plan::CostModel& costs;  ///< of the topology
  /// Whether a bound by routes as pinned and links as fast as the topology says is one of `costs`.
  bool has_bounds = true;
  /// From the first true on the best so far is the answer. Empty: the search runs to its end.
  std::function<bool()> stop = {};
  DecisionLog decisions = {};
};

struct FastestCollective {
  Duration time;
  std::int64_t slice_elements = 0;
  std::shared_ptr<const plan::TransferGraph> graph;
};

/// None where the family has no such collective, or none that is faster than `known`.
/// Precondition: the family does not refuse the topology and the codecs.
std::optional<FastestCollective> fastest_collective(const ScheduleFamily& family,
                                                    const CollectiveOfOneSize& collective,
                                                    std::optional<Duration> known = std::nullopt);

}  // namespace rackrail::planner
