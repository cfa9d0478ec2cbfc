// The first steps of a plan, in which gradients are sent as they are: see
// plan::Plan::compression_warmup_steps.
#pragma once

#include <cstdint>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"

namespace rackrail::planner {

/// How many a plan should have that the planner has chosen the codecs of: as many as the learning
/// rate's warm-up where a codec leaves out more than a tenth of a gradient (by
/// Workload::codec_error), none where all are finer: 16 and 8 bits with error feedback need none.
std::int64_t usual_compression_warmup(const plan::Plan& plan, const plan::Workload& workload);

/// Has the plan warm up for so many steps, and predicts what one takes. A plan without codecs has
/// no warm-up.
void set_compression_warmup(plan::Plan& plan, std::int64_t steps, const plan::Workload& workload,
                            plan::CostModel& cost_model);

}  // namespace rackrail::planner
