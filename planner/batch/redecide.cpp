#include "planner/batch/redecide.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace rackrail::planner {

Redecision redecide(const RedecisionState& previous, const plan::Workload& workload,
                    const BatchSpace& space, const StepTime& step_time,
                    const RedecisionRule& rule) {
  if (!(rule.least_gain >= 0) || rule.confirmations < 1) {
    throw ConfigError(ErrorContext{
        "", "rule for changing the batch",
        fmt::format("a gain of {}, {} confirmations", rule.least_gain, rule.confirmations),
        "a gain of at least 0 and one confirmation or more"});
  }
  const BatchPoint best = search_goodput(workload, space, step_time).best;
  const BatchPoint present = rate(workload, step_time, previous.batch);
  const std::int64_t now = present.batch.global_batch();
  const std::int64_t wanted = best.batch.global_batch();
  Redecision decision;
  decision.next.batch = previous.batch;
  decision.gain = best.goodput() / present.goodput() - 1;
  if (wanted == now || decision.gain < rule.least_gain) {
    decision.reason =
        fmt::format("batch {} stays: the best, {}, would give {:+.1f} % goodput, below {:.1f} %",
                    now, wanted, decision.gain * 100, rule.least_gain * 100);
    return decision;
  }
  decision.next.larger = wanted > now ? previous.larger + 1 : 0;
  decision.next.smaller = wanted < now ? previous.smaller + 1 : 0;
  const int agreed = std::max(decision.next.larger, decision.next.smaller);
  if (agreed < rule.confirmations) {
    decision.reason = fmt::format("batch {} stays for now: {} would give {:+.1f} % ({} of {})", now,
                                  wanted, decision.gain * 100, agreed, rule.confirmations);
    return decision;
  }
  decision.changes = true;
  decision.next = {best.batch, 0, 0};
  decision.reason = fmt::format("batch {} becomes {}: {:+.1f} % goodput at a noise scale of {:.4g}",
                                now, wanted, decision.gain * 100, *workload.noise_scale);
  return decision;
}

}  // namespace rackrail::planner
