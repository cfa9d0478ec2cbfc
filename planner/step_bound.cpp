#include "planner/step_bound.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace rackrail::planner {

StepBound::StepBound(std::span<const Candidate> candidates, const topology::Topology& topology,
                     const plan::Workload& workload)
    : candidates_(candidates), topology_(topology), workload_(workload) {}

StepBound::Compute StepBound::compute(const plan::BatchPlan& batch) const {
  Compute least{std::vector<Duration>(workload_.tensors.size(), Duration(INT64_MAX)),
                Duration(INT64_MAX), Duration()};
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
    const std::string& device = topology_.node(topology_.node_of(Rank(r))).device_class;
    if (!seen.emplace(device, batch.local_batch[r]).second) {
      continue;
    }
    const plan::ComputeTimes times = plan::compute_times(workload_, device, batch.local_batch[r]);
    // Gradients of the last pass are sent, those before only add up.
    const Duration before =
        (batch.accumulation - 1) * (times.forward + times.backward) + times.forward;
    for (std::size_t i = 0; i < least.ready.size(); ++i) {
      least.ready[i] = std::min(least.ready[i], before + times.ready[i]);
    }
    least.optimizer = std::min(least.optimizer, times.optimizer);
    least.end = std::max(least.end, before + times.backward + times.optimizer);
  }
  return least;
}

Duration StepBound::at_least(const std::vector<TensorGroup>& groups,
                             const std::vector<Choice>& choices,
                             const plan::BatchPlan& batch) const {
  const Compute least = compute(batch);
  Duration bound = least.end;
  Duration first_ready(INT64_MAX);  // of this bucket and those after it
  std::vector<double> seconds(topology_.link_count(), 0);
  double busiest = 0;
  for (std::size_t j = groups.size(); j-- > 0;) {
    const auto elements = groups[j].elements;
    const Candidate& candidate = candidates_[choices[j].candidate];
    Duration ready;
    for (const std::uint32_t tensor : groups[j].tensors) {
      ready = std::max(ready, least.ready[tensor]);
    }
    first_ready = std::min(first_ready, ready);
    for (const plan::LinkLoad& load : candidate.loads) {
      double& sum = seconds[load.link.index()];
      sum += load.at_least(elements).seconds();
      busiest = std::max(busiest, sum);
    }
    bound = std::max({bound, first_ready + Duration::from_seconds(busiest) + least.optimizer,
                      ready + candidate.model.at_least(elements) + least.optimizer});
  }
  // Sums of doubles, rounded to picoseconds.
  constexpr double kPrecision = 1e-9;
  return scaled(bound, 1 - kPrecision);
}

}  // namespace rackrail::planner
