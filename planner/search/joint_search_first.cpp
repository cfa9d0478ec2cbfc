// What the joint search begins with: sketches, and plans near enough to the bound.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/parse_units.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/search/joint_search.hpp"

namespace rackrail::planner {

void JointSearch::add_sketches(std::vector<Search::Scored>& plans, const plan::BatchPlan& batch,
                               std::span<const CandidateFilter> limits) {
  struct Sketch {
    std::size_t turn;  ///< how many of the same limit are likelier
    Search::Draft draft;
  };
  const auto place = [this](const Sketch& sketch) {
    return std::pair(!search_.is_affordable(sketch.draft), sketch.draft.at_least);
  };
  std::vector<Sketch> sketches;
  for (const CandidateFilter& limit : limits) {
    std::vector<Sketch> of_limit;
    for (const Bytes size : sizes_) {
      if (auto draft = search_.sketch({"sketch", size, limit}, batch)) {
        of_limit.push_back({0, *std::move(draft)});
      }
    }
    std::ranges::stable_sort(of_limit, {}, place);
    for (std::size_t turn = 0; turn < of_limit.size(); ++turn) {
      sketches.push_back({turn, std::move(of_limit[turn].draft)});
    }
  }
  // The likeliest of each limit come first, as the search may end before it has tried them all.
  std::ranges::stable_sort(sketches, {}, [&](const Sketch& sketch) {
    return std::tuple_cat(std::tuple(sketch.turn), place(sketch));
  });
  std::optional<Search::Scored> best;
  Duration fastest = CandidateSet::kNoLimit;
  for (const Search::Scored& plan : plans) {
    fastest = std::min(fastest, plan.estimate.step_time);
  }
  for (auto& [turn, sketch] : sketches) {
    const bool is_first = plans.empty() && !best.has_value();
    if (is_first) {
      search_.score(sketch.scored);
    } else if (is_stopped()) {
      break;
    } else if (!search_.is_affordable(sketch) || sketch.at_least >= fastest ||
               !search_.score_below(sketch.scored, fastest)) {
      continue;
    }
    fastest = sketch.scored.estimate.step_time;
    best = std::move(sketch.scored);
  }
  if (best.has_value()) {
    plans.push_back(*std::move(best));
  }
}

std::vector<Search::Scored> JointSearch::first_plans(const plan::BatchPlan& batch) {
  std::vector<Search::Scored> plans;
  report("a first plan");
  std::vector<CandidateFilter> limits = {is_at_most_fp16, any_candidate};
  add_sketches(plans, batch, limits);
  search_.complete();
  if (!is_stopped()) {
    // With very many ranks a quick search may not come to drafts: then each family has a chance.
    if (options_.effort == SearchEffort::kQuick && batch.local_batch.size() >= kVeryManyRanks) {
      std::set<std::string> families;
      for (const Candidate& candidate : search_.candidates().all()) {
        families.insert(candidate.family);
      }
      for (const std::string& family : families) {
        const CandidateFilter of_family = [family](const Candidate& candidate) {
          return candidate.family == family;
        };
        limits.push_back(both(is_fp32, of_family));
        limits.push_back(both(is_at_most_fp16, of_family));
      }
    }
    add_sketches(plans, batch, limits);
  }
  return plans;
}

std::optional<JointResult> JointSearch::near_enough_in_fp32(Duration enough) {
  if (options_.codec.has_value() || search_.candidates().allowed_codecs().size() < 2) {
    return std::nullopt;
  }
  const plan::BatchPlan batch = space_.fixed();
  const Duration limit = enough + Duration(1);
  for (const bool is_complete : {false, true}) {
    if (is_complete) {
      if (batch.local_batch.size() >= kVeryManyRanks) {
        break;
      }
      search_.complete();
    }
    for (const Bytes size : sizes_) {
      report(fmt::format("FP32 in buckets of {}", to_string(size)));
      auto draft = search_.draft_below({"best fp32", size, is_fp32}, batch, limit);
      if (draft && search_.is_affordable(*draft) && search_.may_beat(*draft, limit) &&
          search_.score_below(draft->scored, limit)) {
        JointResult result;
        result.best_of.emplace("best fp32", draft->scored.estimate.step_time);
        result.best = std::move(draft->scored);
        return result;
      }
      if (options_.stop && options_.stop()) {
        return std::nullopt;
      }
    }
  }
  return std::nullopt;
}

}  // namespace rackrail::planner
