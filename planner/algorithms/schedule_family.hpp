// Schedule families: functions from a topology to a transfer graph.
//
// To add one: write planner/algorithms/<family>.cpp with a class derived from ScheduleFamily and
// its factory make_<family>(), add the line RACKRAIL_REGISTER(<family>) to
// planner/algorithms/families.def, and put a test into tests/unit/planner/. Nothing else changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/codec.hpp"
#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/pipeline/schedule_request.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// What an all-reduce takes as a transfer graph.
struct GraphSize {
  std::uint64_t transfers = 0;  ///< memory of a graph, and of its simulation
  std::uint64_t movements = 0;  ///< pairs of a transfer and a chunk that it moves: of the verifier
};

class ScheduleFamily {
 public:
  virtual ~ScheduleFamily() = default;
  ScheduleFamily() = default;
  ScheduleFamily(const ScheduleFamily&) = delete;
  ScheduleFamily& operator=(const ScheduleFamily&) = delete;

  virtual std::string_view name() const = 0;  ///< for files and --schedule: "ring"
  /// Why the family cannot be used on this topology with these codecs, if so.
  virtual std::optional<std::string> refusal(const topology::Topology& topology,
                                             const TierCodecs& codecs) const = 0;
  /// At least; nothing where it grows no faster than the ranks. Precondition: no refusal.
  virtual GraphSize graph_size(const topology::Topology& topology) const {
    (void)topology;
    return {};
  }
  /// The all-reduce by formulas, in FP32 and without routes, where the family has them; else null.
  /// Precondition: no refusal.
  virtual std::unique_ptr<plan::RegularSchedule> regular_all_reduce(
      const topology::Topology& topology) const {
    (void)topology;
    return nullptr;
  }
  /// Whether the transfers and what they wait for are others with some codecs than in FP32.
  virtual bool depends_on_codecs() const { return false; }
  /// An all-reduce with a pinned route for every transfer. Precondition: no refusal.
  virtual plan::TransferGraph all_reduce(const ScheduleRequest& request) const = 0;
  /// All-reduces of which some suit small buffers and some large ones: that of all_reduce(), then
  /// finer ones, if the family has any.
  virtual std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const;
  /// The same for any collective that runs alone; empty where the family has none. The request's
  /// topology and router must outlive the result.
  virtual std::vector<CollectiveForm> collectives(plan::Collective what,
                                                  const ScheduleRequest& request) const;
};

/// All of planner/algorithms/families.def, in its order.
std::span<const std::unique_ptr<ScheduleFamily>> schedule_families();
/// Throws ConfigError that lists the known names.
const ScheduleFamily& schedule_family(std::string_view name);

/// The family's refusal, else why its graph would be too large to be stored or verified, if so:
/// more than kMostPlannedTransfers, or than the verifier takes.
std::optional<std::string> graph_refusal(const ScheduleFamily& family,
                                         const topology::Topology& topology,
                                         const TierCodecs& codecs);
}  // namespace rackrail::planner
