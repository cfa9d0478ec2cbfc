#include "planner/search/step_bound.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/tuning/bound.hpp"

namespace rackrail::planner {

StepBound::StepBound(std::span<const Candidate> candidates, const topology::Topology& topology,
                     const plan::Workload& workload)
    : candidates_(candidates), topology_(topology), workload_(workload) {}

StepBound::Compute StepBound::compute(const plan::BatchPlan& batch) const {
  Compute least{std::vector<Duration>(workload_.tensors.size(), Duration(INT64_MAX)),
                Duration(INT64_MAX), Duration()};
  for (const auto& [before, times] : last_passes(topology_, workload_, batch)) {
    for (std::size_t i = 0; i < least.ready.size(); ++i) {
      least.ready[i] = std::min(least.ready[i], before + times.ready[i]);
    }
    least.optimizer = std::min(least.optimizer, times.optimizer);
    least.end = std::max(least.end, before + times.backward + times.optimizer);
  }
  return least;
}

Duration StepBound::ready(const Compute& least, const TensorGroup& group) {
  Duration ready;
  for (const std::uint32_t tensor : group.tensors) {
    ready = std::max(ready, least.ready[tensor]);
  }
  return ready;
}

Duration StepBound::at_least(const std::vector<TensorGroup>& groups, const plan::BatchPlan& batch,
                             const std::function<GroupLoad(std::size_t group)>& load_of) const {
  const Compute least = compute(batch);
  Duration bound = least.end;
  Duration first_ready(INT64_MAX);  // of this bucket and those after it
  std::vector<double> seconds(topology_.link_count(), 0);
  double busiest = 0;
  for (std::size_t j = groups.size(); j-- > 0;) {
    const Duration group_ready = ready(least, groups[j]);
    first_ready = std::min(first_ready, group_ready);
    const GroupLoad load = load_of(j);
    for (const auto& [link, of_link] : load.seconds) {
      double& sum = seconds[link.index()];
      sum += of_link;
      busiest = std::max(busiest, sum);
    }
    bound = std::max({bound, first_ready + Duration::from_seconds(busiest) + least.optimizer,
                      group_ready + load.alone + least.optimizer});
  }
  // Sums of doubles, rounded to picoseconds.
  constexpr double kPrecision = 1e-9;
  return scaled(bound, 1 - kPrecision);
}

Duration StepBound::at_least(const std::vector<TensorGroup>& groups,
                             const std::vector<Choice>& choices,
                             const plan::BatchPlan& batch) const {
  return at_least(groups, batch, [&](std::size_t group) {
    const auto elements = groups[group].elements;
    const Candidate& candidate = candidates_[choices[group].candidate];
    GroupLoad load{candidate.model.alone_at_least(elements), {}};
    for (const plan::LinkLoad& of : candidate.loads) {
      load.seconds.emplace_back(of.link, of.alone_at_least(elements).seconds());
    }
    return load;
  });
}

Duration StepBound::at_least(const std::vector<TensorGroup>& groups,
                             const std::vector<std::size_t>& candidates,
                             const plan::BatchPlan& batch) const {
  std::map<std::int64_t, GroupLoad> known;  // by elements
  return at_least(groups, batch, [&](std::size_t group) {
    const auto elements = groups[group].elements;
    const auto [at, is_new] = known.try_emplace(elements);
    GroupLoad& load = at->second;
    if (!is_new) {
      return load;
    }
    load.alone = Duration(INT64_MAX);
    // What the candidates have in common: a link that one of them leaves alone may be free.
    std::map<LinkId, std::pair<double, std::size_t>> common;  // seconds, candidates that use it
    for (const std::size_t number : candidates) {
      const Candidate& candidate = candidates_[number];
      load.alone = std::min(load.alone, candidate.model.alone_at_least(elements));
      for (const plan::LinkLoad& of : candidate.loads) {
        const double of_link = of.alone_at_least(elements).seconds();
        const auto [link, is_first] = common.try_emplace(of.link, of_link, 0);
        link->second.first = std::min(link->second.first, of_link);
        ++link->second.second;
      }
    }
    for (const auto& [link, use] : common) {
      if (use.second == candidates.size()) {
        load.seconds.emplace_back(link, use.first);
      }
    }
    return load;
  });
}

std::vector<Duration> StepBound::left(const std::vector<TensorGroup>& groups,
                                      const plan::BatchPlan& batch, Duration step) const {
  const Compute least = compute(batch);
  std::vector<Duration> left;
  for (const TensorGroup& group : groups) {
    left.push_back(step - least.optimizer - ready(least, group));
  }
  return left;
}

}  // namespace rackrail::planner
