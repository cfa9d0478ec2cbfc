#include "plan/plan.hpp"

#include "base/units.hpp"

namespace rackrail::plan {

std::int64_t BatchPlan::global_batch() const {
  std::int64_t samples = 0;
  for (const std::int64_t batch : local_batch) {
    samples = detail::checked_add(samples, batch);
  }
  return detail::checked_mul(samples, accumulation);
}

}  // namespace rackrail::plan
