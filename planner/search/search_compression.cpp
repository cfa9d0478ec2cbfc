// The part of the search that looks for codecs over the whole step.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "planner/compression/compression.hpp"
#include "planner/compression/compression_search.hpp"
#include "planner/search/search.hpp"

namespace rackrail::planner {

CompressionTable Search::table_for(const std::vector<TensorGroup>& groups,
                                   const plan::BatchPlan& batch, const CandidateFilter& filter) {
  return compression_table(groups, workload_, topology_, batch, candidates_, loads(filter), filter);
}

std::optional<Search::Draft> Search::compress(Bytes bucket_size, const plan::BatchPlan& batch,
                                              const CandidateFilter& filter) {
  std::optional<Duration> fastest;
  std::vector<TensorGroup> groups;
  std::vector<Choice> choices;
  for (const bool separate_protected : {false, true}) {
    std::vector<TensorGroup> own = groups_of(bucket_size, separate_protected);
    const CompressionTable table = table_for(own, batch, filter);
    if (table.choices.empty()) {
      continue;
    }
    const CompressionChoice found = search_compression(Timeline(table.problem), table.starts());
    if (!fastest.has_value() || found.step < scaled(*fastest, 1 - kWorthwhile)) {
      fastest = found.step;
      groups = std::move(own);
      choices = table.chosen(found.fastest);
    }
  }
  if (!fastest.has_value()) {
    return std::nullopt;
  }
  return drafted(groups, choices, bucket_size, batch);
}

std::vector<Search::Uniform> Search::uniform_plans(Bytes bucket_size, const plan::BatchPlan& batch,
                                                   const CandidateFilter& filter) {
  struct Expected {
    const CompressionTable::Uniform* uniform;
    std::size_t division;
    Duration step;
  };
  std::vector<std::vector<TensorGroup>> groups;
  std::vector<CompressionTable> tables;
  for (const bool separate_protected : {false, true}) {
    groups.push_back(groups_of(bucket_size, separate_protected));
    tables.push_back(table_for(groups.back(), batch, filter));
  }
  std::map<std::string, Expected> all;  // by name: on the division where it is faster
  Duration best = Duration(INT64_MAX);
  for (std::size_t division = 0; division < tables.size(); ++division) {
    const Timeline timeline(tables[division].problem);
    for (const CompressionTable::Uniform& uniform : tables[division].uniform) {
      const bool needs_division = uniform.hurts_protected && division == 0;
      if (needs_division || uniform.assignment.empty()) {
        continue;
      }
      const Expected expected{&uniform, division, timeline.step(uniform.assignment)};
      const auto at = all.emplace(uniform.name, expected).first;
      if (expected.step < at->second.step) {
        at->second = expected;
      }
      best = std::min(best, expected.step);
    }
  }
  std::vector<std::pair<std::string, Expected>> by_step(all.begin(), all.end());
  std::ranges::stable_sort(by_step, {}, [](const auto& one) { return one.second.step; });
  std::vector<Uniform> plans;
  for (const auto& [name, one] : by_step) {  // the most promising first: the search may be stopped
    if (!expects() || one.step <= scaled(best, 1 + kTimelineDeviation)) {
      Scored scored =
          drafted(groups[one.division], tables[one.division].chosen(one.uniform->assignment),
                  bucket_size, batch)
              .scored;
      if (score_below(scored, CandidateSet::kNoLimit)) {  // else the search was stopped
        plans.push_back({one.uniform->name, std::move(scored), one.uniform->is_everywhere});
      }
    }
  }
  return plans;
}

int Search::lighten(Scored& best, const CandidateFilter& filter, Duration limit) {
  const std::vector<TensorGroup> groups = groups_in(best.plan);
  const CompressionTable table = table_for(groups, best.plan.batch, filter);
  if (table.choices.empty()) {
    return 0;
  }
  Assignment assignment;
  for (std::size_t b = 0; b < table.choices.size(); ++b) {
    const auto at =
        std::find_if(table.choices[b].begin(), table.choices[b].end(),
                     [&](const Choice& choice) { return choice.candidate == best.chosen[b]; });
    if (at == table.choices[b].end()) {
      return 0;  // chosen by other rules: nothing to start from
    }
    assignment.push_back(static_cast<std::uint32_t>(at - table.choices[b].begin()));
  }
  const Timeline timeline(table.problem);
  const double most = std::max(1.0, limit / best.estimate.step_time);
  const std::vector<LighterOption> changes =
      planner::lighten(timeline, assignment, scaled(timeline.step(assignment), most));
  // As many of them as the simulator agrees to, by bisection: more changes are mostly slower.
  std::size_t agreed = 0;
  std::size_t refused = changes.size() + 1;
  while (agreed + 1 < refused) {
    const std::size_t count =
        refused > changes.size() ? changes.size() : agreed + (refused - agreed) / 2;
    Scored trial = best;
    for (std::size_t i = agreed; i < count; ++i) {
      const auto& [bucket, option] = changes[i];
      set_choice(trial, bucket, table.choices[bucket][option]);
    }
    if (score_below(trial, limit + Duration(1))) {
      best = std::move(trial);
      agreed = count;
    } else {
      refused = count;
    }
  }
  return static_cast<int>(agreed);
}

}  // namespace rackrail::planner
