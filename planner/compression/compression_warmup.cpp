#include "planner/compression/compression_warmup.hpp"

#include <algorithm>

#include "planner/batch/learning_rate.hpp"

namespace rackrail::planner {

std::int64_t usual_compression_warmup(const plan::Plan& plan, const plan::Workload& workload) {
  constexpr double kFineError = 0.1;
  const bool is_coarse = std::any_of(
      plan.buckets.begin(), plan.buckets.end(),
      [&](const plan::Bucket& bucket) { return workload.codec_error(bucket.codec) > kFineError; });
  return is_coarse ? kWarmupSteps : 0;
}

void set_compression_warmup(plan::Plan& plan, std::int64_t steps, const plan::Workload& workload,
                            plan::CostModel& cost_model) {
  const bool compresses =
      std::any_of(plan.buckets.begin(), plan.buckets.end(),
                  [](const plan::Bucket& bucket) { return bucket.codec.is_lossy(); });
  plan.compression_warmup_steps = compresses ? steps : 0;
  plan.prediction.warmup_step_time =
      plan.compression_warmup_steps > 0
          ? cost_model.predicted_step(plan::without_codecs(plan), workload).step_time
          : Duration();
}

}  // namespace rackrail::planner
