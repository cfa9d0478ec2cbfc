#include "plan/plan.hpp"

#include "base/error.hpp"
#include "base/units.hpp"

namespace rackrail::plan {

std::int64_t BatchPlan::global_batch() const {
  std::int64_t samples = 0;
  for (const std::int64_t batch : local_batch) {
    samples = detail::checked_add(samples, batch);
  }
  return detail::checked_mul(samples, accumulation);
}

Plan without_codecs(Plan plan) {
  for (TransferGraph& schedule : plan.schedules) {
    schedule.remove_codecs();
  }
  for (Bucket& bucket : plan.buckets) {
    bucket.codec = Codec{};
    for (auto& [tier, codec] : bucket.codec_tiers) {
      codec = Codec{};
    }
  }
  plan.compression_warmup_steps = 0;
  return plan;
}

}  // namespace rackrail::plan
