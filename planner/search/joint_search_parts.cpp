// The joint search for a part of the candidates alone: one family of schedules, one codec, or no
// rates.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/parse_units.hpp"
#include "plan/codec_name.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/search/joint_search.hpp"

namespace rackrail::planner {

void JointSearch::try_part(Found& found, const CandidateFilter& part, const std::string& name) {
  const plan::BatchPlan batch = found.best.plan.batch;
  bool is_better = false;
  for (const Bytes size : sizes_) {
    for (const auto& [limit_name, limit] : kCodecLimits) {
      if (is_stopped()) {
        return;
      }
      report(fmt::format("{} alone, buckets of {}", name, to_string(size)));
      const Duration most = scaled(found.best.estimate.step_time, 1 - kWorthwhile / 2);
      auto draft = search_.draft_below({name, size, both(limit, part)}, batch, most);
      if (draft && search_.may_beat(*draft, most) && search_.score_below(draft->scored, most)) {
        found.best = std::move(draft->scored);
        found.fastest = std::min(found.fastest, found.best.estimate.step_time);
        found.lightened = 0;
        is_better = true;
      }
    }
  }
  if (is_better) {
    refine(found, part, search_.candidates().allowed_codecs().size() > 1);
  }
}

void JointSearch::try_parts(Found& found) {
  const auto& all = search_.candidates().all();
  if (all.front().graph.rank_count() >= kVeryManyRanks) {
    return;
  }
  std::vector<std::string> families;  // in the order in which they were made
  for (const Candidate& candidate : all) {
    if (!candidate.only_protected &&
        std::ranges::find(families, candidate.family) == families.end()) {
      families.push_back(candidate.family);
    }
  }
  std::vector<std::pair<std::string, CandidateFilter>> parts;
  for (const std::string& family : families) {
    if (families.size() > 1) {
      parts.emplace_back(family, [family](const Candidate& candidate) {
        return candidate.family == family && is_no_step_form(candidate);
      });
    }
  }
  const auto has_rates = [](const Candidate& candidate) { return candidate.graph.has_rates(); };
  if (std::ranges::any_of(all, has_rates)) {
    parts.emplace_back("schedules without rates", both(std::not_fn(has_rates), is_no_step_form));
  }
  const std::vector<plan::Codec>& codecs = search_.candidates().allowed_codecs();
  for (const plan::Codec& codec : codecs) {
    if (codecs.size() > 1 && !options_.codec.has_value()) {
      parts.emplace_back(plan::display_name(codec), [codec](const Candidate& candidate) {
        return candidate.codecs.across == codec && is_no_step_form(candidate);
      });
    }
  }
  begin_phase(parts.size() * sizes_.size() * std::size(kCodecLimits));
  for (const auto& [name, part] : parts) {
    try_part(found, part, name);
  }
}

void JointSearch::finish_quickly(JointResult& result) {
  Found found{.best = std::move(result.best),
              .fastest = {},
              .best_of = std::move(result.best_of),
              .uniform = {}};
  found.fastest = found.best.estimate.step_time;
  take_uniform(found, any_candidate);
  const Duration limit = std::min(scaled(found.fastest, 1 + kWorthwhile), found.fastest_uniform);
  result.lightened += search_.lighten(found.best, any_candidate, limit);
  result.best = std::move(found.best);
  result.best_of = std::move(found.best_of);
  result.uniform = std::move(found.uniform);
}

}  // namespace rackrail::planner
