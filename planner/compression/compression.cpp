#include "planner/compression/compression.hpp"

#include <algorithm>
#include <utility>

#include "planner/tuning/bound.hpp"

namespace rackrail::planner {

namespace {

std::vector<TierCodecs> pairs_of(const CandidateSet& candidates, const CandidateFilter& filter) {
  std::vector<TierCodecs> pairs;
  for (const Candidate& candidate : candidates.all()) {
    if (filter(candidate) && std::ranges::find(pairs, candidate.codecs) == pairs.end()) {
      pairs.push_back(candidate.codecs);
    }
  }
  return pairs;
}

bool hurts_protected(const CandidateSet& candidates, const TierCodecs& pair) {
  return std::ranges::any_of(
      candidates.all(), [&](const Candidate& c) { return c.codecs == pair && c.hurts_protected; });
}

/// By tensor: when its gradient is ready on the latest rank, from the start of the step; then the
/// same for the end of backward and the longest optimiser.
struct ComputeSpan {
  std::vector<Duration> ready;
  Duration end;
  Duration optimizer;
};

ComputeSpan latest_compute(const plan::Workload& workload, const topology::Topology& topology,
                           const plan::BatchPlan& batch, double stretch) {
  ComputeSpan span{std::vector<Duration>(workload.tensors.size()), {}, {}};
  for (const auto& [before, times] : last_passes(topology, workload, batch)) {
    for (std::size_t i = 0; i < span.ready.size(); ++i) {
      span.ready[i] = std::max(span.ready[i], scaled(before + times.ready[i], stretch));
    }
    span.end = std::max(span.end, scaled(before + times.backward, stretch));
    span.optimizer = std::max(span.optimizer, scaled(times.optimizer, stretch));
  }
  return span;
}

/// When the last gradient of a group is ready.
Duration ready_of(const TensorGroup& group, const ComputeSpan& compute) {
  Duration ready;
  for (const std::uint32_t tensor : group.tensors) {
    ready = std::max(ready, compute.ready[tensor]);
  }
  return ready;
}

}  // namespace

std::vector<Assignment> CompressionTable::starts() const {
  std::vector<Assignment> assignments;
  for (const Uniform& one : uniform) {
    assignments.push_back(one.assignment);
  }
  return assignments;
}

std::vector<Choice> CompressionTable::chosen(const Assignment& assignment) const {
  std::vector<Choice> chosen;
  for (std::size_t b = 0; b < assignment.size(); ++b) {
    chosen.push_back(choices[b][assignment[b]]);
  }
  return chosen;
}

CompressionTable compression_table(const std::vector<TensorGroup>& groups,
                                   const plan::Workload& workload,
                                   const topology::Topology& topology, const plan::BatchPlan& batch,
                                   CandidateSet& candidates, const ScheduleLoads& loads,
                                   const CandidateFilter& filter) {
  const ComputeSpan compute = latest_compute(workload, topology, batch, loads.compute_stretch());
  CompressionTable table;
  table.problem.resources = loads.resource_count();
  table.problem.compute_end = compute.end;
  table.problem.optimizer = compute.optimizer;
  const std::vector<TierCodecs> pairs = pairs_of(candidates, filter);
  for (const TierCodecs& pair : pairs) {
    table.uniform.push_back({codecs_text(pair), hurts_protected(candidates, pair), {}, true});
  }
  const bool are_all_protected =
      std::ranges::all_of(groups, [](const TensorGroup& group) { return group.is_protected; });
  for (const TensorGroup& group : groups) {
    if (candidates.is_stopped()) {
      return {};
    }
    TimelineBucket bucket;
    bucket.ready = ready_of(group, compute);
    std::vector<Choice> choices;
    std::vector<std::size_t> pair_of_option;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      const auto choice = candidates.cheapest(group.elements, [&](const Candidate& c) {
        return filter(c) && c.codecs == pairs[p] &&
               (group.is_protected ? !c.hurts_protected : !c.only_protected);
      });
      if (!choice.has_value()) {
        continue;
      }
      const Candidate& candidate = candidates.all()[choice->candidate];
      TimelineOption option =
          loads.option(choice->candidate, group.elements, choice->slice_elements, choice->time);
      option.harm = static_cast<double>(group.elements) * candidate.error * candidate.error;
      bucket.options.push_back(std::move(option));
      choices.push_back(*choice);
      pair_of_option.push_back(p);
    }
    if (choices.empty()) {
      return {};
    }
    const auto fastest = static_cast<std::uint32_t>(
        std::min_element(choices.begin(), choices.end(),
                         [](const Choice& a, const Choice& b) { return a.time < b.time; }) -
        choices.begin());
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      const auto at = std::find(pair_of_option.begin(), pair_of_option.end(), p);
      const bool has_it = at != pair_of_option.end();
      CompressionTable::Uniform& uniform = table.uniform[p];
      uniform.is_everywhere =
          uniform.is_everywhere && (has_it || (group.is_protected && !are_all_protected));
      uniform.assignment.push_back(
          !has_it ? fastest : static_cast<std::uint32_t>(at - pair_of_option.begin()));
    }
    table.problem.buckets.push_back(std::move(bucket));
    table.choices.push_back(std::move(choices));
  }
  return table;
}

Duration expected_step(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                       const plan::Workload& workload, const topology::Topology& topology,
                       const plan::BatchPlan& batch, const ScheduleLoads& loads) {
  const ComputeSpan compute = latest_compute(workload, topology, batch, loads.compute_stretch());
  TimelineProblem problem{.resources = loads.resource_count(),
                          .buckets = {},
                          .compute_end = compute.end,
                          .optimizer = compute.optimizer};
  for (std::size_t b = 0; b < groups.size(); ++b) {
    const Choice& choice = choices[b];
    problem.buckets.push_back(
        {ready_of(groups[b], compute),
         {loads.option(choice.candidate, groups[b].elements, choice.slice_elements, choice.time)}});
  }
  return Timeline(problem).step(Assignment(groups.size(), 0));
}

}  // namespace rackrail::planner
