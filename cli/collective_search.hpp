// The search for how a collective runs: with the family that was asked for, the fastest of all, or
// a schedule from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

inline constexpr const char* kBestSchedule = "best";
inline constexpr Bytes kUsualSlice = 1_MiB;

/// One collective over a cluster, and what it is simulated with.
struct CollectiveCase {
  const topology::Topology& cluster;
  plan::Collective what;
  planner::TierCodecs codecs;
  std::int64_t elements = 0;
  std::optional<std::int64_t> slice_elements;    ///< of all schedules; none: what is fastest
  std::optional<std::int64_t> slice_of_regular;  ///< of those given by formulas, likewise
  sim::SimulationOptions simulation;
  plan::CostModel& costs;                      ///< of the same simulation, for comparisons
  std::function<void(double share)> progress;  ///< of the search for the fastest
  Duration bound;                              ///< no schedule takes less
  bool is_quick = false;                       ///< whether the search for the fastest is
  planner::DecisionLog decisions;
};

struct FastestOfFamilies {
  std::string_view family;
  std::string mechanism;  ///< as plan::TransferGraph has it
  sim::CollectiveResult result;
  std::int64_t largest_message = 0;  ///< elements, were it not sent in slices
  /// The same once more, with what other options record.
  std::function<sim::CollectiveResult(const sim::SimulationOptions&)> again;
  bool ended_early = false;  ///< there may be a faster one, which a quick search does not look for
};

/// With the family of that name, or for kBestSchedule the fastest of all. Throws ConfigError for a
/// name that is none, and where none can run it.
FastestOfFamilies simulate_schedule(const CollectiveCase& c, const std::string& schedule);
/// With a schedule from a file, which has no family. Throws ConfigError for another number of
/// ranks.
FastestOfFamilies simulate_graph(const CollectiveCase& c,
                                 const std::shared_ptr<const plan::TransferGraph>& graph);

}  // namespace rackrail::cli
