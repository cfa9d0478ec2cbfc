// Schedules that reduce one large buffer alone, as they are compared for programs: by prediction,
// and by what no prediction knows of flows that share a link (held_rates.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/cost_model.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The fastest of a family's variants with its slices, for a buffer of `elements`, as judged by
/// judged_by_rates(), which also gives its time. All variants are in this codec. Messages are not
/// cut below 32 KiB as sent, unless variant and slices leave transfers as they are. Preconditions:
/// there are variants, all of `topology`, and `elements` is positive.
DividedCollective judged_division(const std::vector<CollectiveForm>& forms,
                                  const plan::Codec& codec, std::int64_t elements,
                                  plan::CostModel& cost_model, const topology::Topology& topology);

}  // namespace rackrail::planner
