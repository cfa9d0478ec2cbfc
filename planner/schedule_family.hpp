// Schedule families: functions from a topology to a transfer graph.
//
// To add one: write planner/schedules/<family>.cpp with a class derived from ScheduleFamily and its
// factory make_<family>(), add the line RACKRAIL_REGISTER(<family>) to
// planner/schedules/families.def, and put a test into tests/unit/planner/. Nothing else changes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/codec.hpp"
#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Which codec to use on transfers inside a group of ranks (a host; a rack where hosts hold one
/// rank) and on transfers between groups.
struct TierCodecs {
  plan::Codec inside;
  plan::Codec across;
};

struct ScheduleRequest {
  const topology::Topology& topology;
  topology::Router& router;
  TierCodecs codecs;
  /// How finely pipelines may be divided: rounds, and transfers of the whole graph. More than these
  /// are worth their while for one large collective, not among many candidates.
  std::size_t most_rounds = 16;
  std::size_t most_transfers = 130'000;
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
  /// The all-reduce by formulas, in FP32 and without routes, where the family has them; else null.
  /// Precondition: no refusal.
  virtual std::unique_ptr<plan::RegularSchedule> regular_all_reduce(
      const topology::Topology& topology) const {
    (void)topology;
    return nullptr;
  }
  /// An all-reduce with a pinned route for every transfer. Precondition: no refusal.
  virtual plan::TransferGraph all_reduce(const ScheduleRequest& request) const = 0;
  /// All-reduces of which some suit small buffers and some large ones: that of all_reduce(), then
  /// finer ones, if the family has any.
  virtual std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const;
  /// The same of any collective; empty where the family has none.
  virtual std::vector<plan::TransferGraph> collectives(plan::Collective what,
                                                       const ScheduleRequest& request) const;
};

/// All of planner/schedules/families.def, in its order.
std::span<const std::unique_ptr<ScheduleFamily>> schedule_families();
/// Throws ConfigError that lists the known names.
const ScheduleFamily& schedule_family(std::string_view name);

/// The groups that "inside" and "across" speak of: hosts when a host holds several ranks, else
/// racks when a rack does, else every rank alone.
std::vector<topology::RankGroup> tier_groups(const topology::Topology& topology);

}  // namespace rackrail::planner
