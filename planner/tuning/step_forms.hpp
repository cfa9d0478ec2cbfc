// Schedules for the buckets of a step, chosen among those that families have for a lone all-reduce.
//
// For steps a family has a few schedules (ScheduleFamily::all_reduces). On symmetric clusters these
// are about as fast as any. Where hosts, NICs or cables differ, variants for a lone collective
// (collective_forms.hpp) may be faster by tens of percent. Some of these have few enough transfers
// for each of many buckets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/tuning/fastest_collective.hpp"

namespace rackrail::planner {

/// Of a bucket, and of what follows one another like one large buffer, in floats.
inline constexpr std::int64_t kSizesOfStepForms[] = {std::int64_t{1} << 23U,
                                                     std::int64_t{1} << 26U};

struct StepForm {
  const ScheduleFamily* family = nullptr;
  std::size_t number = 0;                            ///< index into the family's variants
  std::shared_ptr<const plan::TransferGraph> graph;  ///< in the codecs of the comparison
};

/// Where variants come from and how they are compared. References must outlive StepForms.
struct StepFormRequest {
  const topology::Topology& topology;
  topology::Router& router;
  plan::CostModel& costs;
  TierCodecs codecs;  ///< in which variants are compared
  bool may_have_rates = true;
};

class StepForms {
 public:
  explicit StepForms(StepFormRequest request) : request_(std::move(request)) {}

  /// The fastest variant of these families, if it beats `known` by enough to be worth another
  /// candidate. None where `known` is near the bound of the network. Families that refuse the
  /// topology or the codecs have none.
  std::optional<StepForm> faster(std::span<const ScheduleFamily* const> families,
                                 std::int64_t elements, Duration known);

  /// One of those in other codecs; none where the family has no such schedule in them.
  std::optional<plan::TransferGraph> in_codecs(const StepForm& form, const TierCodecs& codecs);

 private:
  bool is_right(const plan::TransferGraph& graph) const;
  std::vector<CollectiveForm> made(const ScheduleFamily& family, const TierCodecs& codecs) const;
  /// No all-reduce in the request's codecs takes less.
  Duration bound(std::int64_t elements);
  FamilyDivisions& divisions_of(const ScheduleFamily& family);

  StepFormRequest request_;
  std::optional<Bandwidth> rate_;  ///< of the network's bound, once it was asked for
  std::map<const ScheduleFamily*, FamilyDivisions> divisions_;
};

}  // namespace rackrail::planner
