#include "planner/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/parse_units.hpp"
#include "planner/batch/batch.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/buckets.hpp"

namespace rackrail::planner {

namespace {

/// All in which two plans of one search can differ.
std::vector<std::int64_t> fingerprint(const plan::Plan& plan) {
  std::vector<std::int64_t> key = plan.batch.local_batch;
  key.push_back(plan.batch.accumulation);
  for (const plan::Bucket& bucket : plan.buckets) {
    key.insert(key.end(), {bucket.schedule, bucket.slice_elements, bucket.priority,
                           static_cast<std::int64_t>(bucket.tensors.size())});
    key.insert(key.end(), bucket.tensors.begin(), bucket.tensors.end());
  }
  return key;
}

bool has_protected(const std::vector<TensorGroup>& groups) {
  return std::ranges::any_of(groups, [](const TensorGroup& g) { return g.is_protected; });
}

/// With very many ranks the simulation of a first plan, which has to be, takes longer than many a
/// time budget, unless its ranks are alike in it: such a family comes first then.
std::vector<std::string> made_first(const topology::Topology& topology,
                                    const PlannerOptions& options) {
  constexpr std::size_t kTooManyToSimulate = 1024;
  const bool is_urgent = options.stop && topology.rank_count() >= kTooManyToSimulate;
  return is_urgent && !options.schedule.has_value() ? std::vector<std::string>{"hierarchical-tree"}
                                                    : std::vector<std::string>{};
}

}  // namespace

Search::Search(const topology::Topology& topology, const plan::Workload& workload,
               plan::CostModel& cost_model, const PlannerOptions& options)
    : topology_(topology),
      workload_(workload),
      cost_model_(cost_model),
      options_(options),
      protected_(
          protected_tensors(workload, options.protect_outer_layers && !options.codec.has_value())),
      candidates_(topology, cost_model, options, &workload, made_first(topology, options)),
      bound_(std::in_place, candidates_.all(), topology, workload) {}

void Search::complete() {
  if (candidates_.complete()) {
    look_at_all_candidates();
  }
}

bool Search::add_step_forms() {
  const std::size_t before = candidates_.all().size();
  const bool has_any = candidates_.add_step_forms();
  if (candidates_.all().size() > before) {
    look_at_all_candidates();
  }
  return has_any;
}

Duration Search::lower_bound(const plan::BatchPlan& batch) const {
  return planner::lower_bound(topology_, workload_, batch, candidates_.allowed_codecs(), protected_)
      .time;
}

void Search::look_at_all_candidates() {
  bound_.emplace(candidates_.all(), topology_, workload_);
  loads_.clear();
}

void Search::protect_outer_layers(bool outer_layers) {
  protected_ = protected_tensors(workload_, outer_layers && !options_.codec.has_value());
}

std::optional<Search::Draft> Search::draft(const Policy& policy, const plan::BatchPlan& batch) {
  return draft_below(policy, batch, CandidateSet::kNoLimit);
}

std::optional<Search::Draft> Search::draft_below(const Policy& policy, const plan::BatchPlan& batch,
                                                 Duration limit) {
  std::vector<TensorGroup> groups = group_tensors(workload_, policy.bucket_size);
  std::vector<Choice> choices = choose_below(groups, policy.filter, batch, limit);
  // What has no choice below the limit may have one when it is divided otherwise.
  const bool is_cut = limit != CandidateSet::kNoLimit && choices.size() != groups.size();
  const bool needs_protection =
      std::ranges::any_of(
          choices,
          [&](const Choice& c) { return candidates_.all()[c.candidate].hurts_protected; }) ||
      (is_cut && std::ranges::any_of(candidates_.all(), [&](const Candidate& c) {
         return c.hurts_protected && policy.filter(c);
       }));
  if (needs_protection) {
    groups = group_tensors(workload_, policy.bucket_size, protected_);
    choices = choose_below(groups, policy.filter, batch, limit);
  }
  if (choices.size() != groups.size()) {
    return std::nullopt;
  }
  return drafted(groups, choices, policy.bucket_size, batch);
}

std::optional<Search::Draft> Search::sketch(const Policy& policy, const plan::BatchPlan& batch) {
  // Apart or not, as the candidates want that it takes where none is protected.
  for (const bool separate_protected : {false, true}) {
    const std::vector<TensorGroup> groups =
        separate_protected ? group_tensors(workload_, policy.bucket_size, protected_)
                           : group_tensors(workload_, policy.bucket_size);
    const bool is_mixed = has_protected(groups);
    std::vector<Choice> choices;
    bool hurts_protected = false;
    for (const TensorGroup& group : groups) {
      const auto choice = choose_for(group, is_mixed, policy.filter,
                                     [&](std::int64_t elements, const CandidateFilter& allowed) {
                                       return candidates_.likely(elements, allowed);
                                     });
      if (!choice.has_value()) {
        break;
      }
      hurts_protected = hurts_protected || candidates_.all()[choice->candidate].hurts_protected;
      choices.push_back(*choice);
    }
    if (choices.size() == groups.size() && (separate_protected || !hurts_protected)) {
      Draft draft;
      draft.scored = scored_of(groups, choices, policy.bucket_size, batch);
      draft.at_least = bound_->at_least(groups, choices, batch);
      return draft;
    }
  }
  return std::nullopt;
}

std::vector<Choice> Search::choose_below(const std::vector<TensorGroup>& groups,
                                         const CandidateFilter& filter,
                                         const plan::BatchPlan& batch, Duration limit) {
  // What a collective costs as one of many in a row is no bound of what a bucket takes in a step
  // where links let bursts pass at once.
  if (limit == CandidateSet::kNoLimit || options_.exhaustive || candidates_.has_bursts()) {
    return choose(groups, filter);
  }
  std::vector<std::size_t> allowed;
  for (std::size_t i = 0; i < candidates_.all().size(); ++i) {
    if (filter(candidates_.all()[i])) {
      allowed.push_back(i);
    }
  }
  // Where all of them hurt, protected groups have others, of which the bound knows nothing.
  const bool is_bounded = std::ranges::any_of(
      allowed, [&](std::size_t i) { return !candidates_.all()[i].hurts_protected; });
  if (allowed.empty() || (is_bounded && bound_->at_least(groups, allowed, batch) >= limit)) {
    return {};
  }
  return choose(groups, filter, bound_->left(groups, batch, limit));
}

std::optional<Search::Scored> Search::evaluate(const Policy& policy, const plan::BatchPlan& batch) {
  std::optional<Draft> made = draft(policy, batch);
  if (!made.has_value()) {
    return std::nullopt;
  }
  score(made->scored);
  return std::move(made->scored);
}

Search::Scored Search::scored_of(const std::vector<TensorGroup>& groups,
                                 const std::vector<Choice>& choices, Bytes bucket_size,
                                 const plan::BatchPlan& batch) {
  Scored scored;
  scored.bucket_size = bucket_size;
  scored.plan = assemble(groups, choices, batch);
  for (const Choice& choice : choices) {
    scored.chosen.push_back(choice.candidate);
  }
  return scored;
}

Search::Draft Search::drafted(const std::vector<TensorGroup>& groups,
                              const std::vector<Choice>& choices, Bytes bucket_size,
                              const plan::BatchPlan& batch) {
  Draft draft;
  draft.scored = scored_of(groups, choices, bucket_size, batch);
  draft.at_least = bound_->at_least(groups, choices, batch);
  if (expects() && !candidates_.is_stopped()) {
    draft.expected =
        expected_step(groups, choices, workload_, topology_, batch, loads(any_candidate));
  }
  return draft;
}

bool Search::expects() const {
  return !options_.exhaustive && topology_.rank_count() >= kVeryManyRanks;
}

bool Search::may_beat(const Draft& draft, Duration step) const {
  if (options_.exhaustive) {
    return true;
  }
  return draft.at_least <= step &&
         (!expects() || scaled(draft.expected, 1 - kTimelineDeviation) <= step);
}

bool Search::is_affordable(const Draft& draft) {
  const auto limit = static_cast<std::int64_t>(kMostTransfersOfStep);
  return topology_.rank_count() < kVeryManyRanks || transfers_of(draft.scored) <= limit ||
         followed_of(draft.scored) <= limit;
}

const ScheduleLoads& Search::loads(const CandidateFilter& filter) {
  std::vector<bool> accepted;
  for (const Candidate& candidate : candidates_.all()) {
    accepted.push_back(filter(candidate));
  }
  const auto known = loads_.find(accepted);
  if (known != loads_.end()) {
    return known->second;
  }
  ScheduleLoads made(candidates_.all(), topology_, accepted);
  return loads_.emplace(std::move(accepted), std::move(made)).first->second;
}

std::vector<TensorGroup> Search::groups_of(Bytes bucket_size, bool separate_protected) const {
  std::vector<TensorGroup> groups = separate_protected
                                        ? group_tensors(workload_, bucket_size, protected_)
                                        : group_tensors(workload_, bucket_size);
  for (TensorGroup& group : groups) {
    group.is_protected = holds_protected(group.tensors);
  }
  return groups;
}

std::vector<TensorGroup> Search::groups_in(const plan::Plan& plan) const {
  std::vector<TensorGroup> groups;
  for (const plan::Bucket& bucket : plan.buckets) {
    groups.push_back({bucket.tensors, bucket.elements, holds_protected(bucket.tensors)});
  }
  return groups;
}

bool Search::holds_protected(const std::vector<std::uint32_t>& tensors) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](std::uint32_t tensor) { return protected_[tensor]; });
}

std::optional<Choice> Search::choose_for(const TensorGroup& group, bool is_mixed,
                                         const CandidateFilter& filter, const Choose& choose) {
  auto choice = choose(group.elements, [&](const Candidate& c) {
    return filter(c) && !c.only_protected && !(is_mixed && group.is_protected && c.hurts_protected);
  });
  if (!choice.has_value() && group.is_protected) {
    choice = choose(group.elements, [](const Candidate& c) { return !c.hurts_protected; });
  }
  return choice;
}

std::vector<Choice> Search::choose(const std::vector<TensorGroup>& groups,
                                   const CandidateFilter& filter,
                                   const std::vector<Duration>& limits) {
  std::vector<Choice> choices;
  const bool is_mixed = has_protected(groups);
  // The last gradients have the least time left.
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t g = limits.empty() ? i : groups.size() - 1 - i;
    const Duration limit = limits.empty() ? CandidateSet::kNoLimit : limits[g];
    const auto choice = choose_for(groups[g], is_mixed, filter,
                                   [&](std::int64_t elements, const CandidateFilter& allowed) {
                                     return candidates_.cheapest(elements, allowed, limit);
                                   });
    if (choice.has_value()) {
      choices.push_back(*choice);
    } else if (!limits.empty()) {
      break;
    }
  }
  if (!limits.empty()) {
    std::ranges::reverse(choices);
  }
  return choices;
}

plan::Plan Search::assemble(const std::vector<TensorGroup>& groups,
                            const std::vector<Choice>& choices, const plan::BatchPlan& batch) {
  plan::Plan plan;
  plan.name = fmt::format("{} on {}", workload_.name, topology_.name());
  plan.cluster_name = topology_.name();
  plan.cluster_digest = topology_.digest();
  for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
    plan.rank_names.push_back(topology_.node(topology_.node_of(Rank(r))).name);
  }
  plan.adapters = topology::adapters_of(topology_);
  plan.workload_name = workload_.name;
  plan.workload_digest = workload_.digest();
  plan.batch = batch;
  plan.error_budget = options_.codec.has_value() && !options_.holds_codec_to_budget
                          ? candidates_.largest_error()
                          : options_.error_budget;
  plan.seed = options_.seed;
  for (std::size_t b = 0; b < groups.size(); ++b) {
    plan::Bucket bucket;
    bucket.tensors = groups[b].tensors;
    bucket.elements = groups[b].elements;
    bucket.priority = static_cast<std::uint32_t>(groups.size() - 1 - b);
    plan.buckets.push_back(std::move(bucket));
    set_schedule(plan, b, choices[b]);
  }
  return plan;
}

void Search::set_choice(Scored& scored, std::size_t bucket, const Choice& choice) const {
  scored.chosen[bucket] = choice.candidate;
  set_schedule(scored.plan, bucket, choice);
}

void Search::set_schedule(plan::Plan& plan, std::size_t bucket, const Choice& choice) const {
  const Candidate& candidate = candidates_.all()[choice.candidate];
  plan::Bucket& target = plan.buckets[bucket];
  target.slice_elements = choice.slice_elements;
  target.codec = candidate.strongest;
  target.codec_tiers = candidate.codec_tiers;
  target.schedule = static_cast<std::uint32_t>(choice.candidate);
}

void Search::materialise(plan::Plan& plan) const {
  std::map<std::uint32_t, std::uint32_t> numbers;
  plan.schedules.clear();
  for (plan::Bucket& bucket : plan.buckets) {
    const auto [it, added] =
        numbers.emplace(bucket.schedule, static_cast<std::uint32_t>(plan.schedules.size()));
    if (added) {
      plan.schedules.push_back(candidates_.all()[bucket.schedule].graph);
    }
    bucket.schedule = it->second;
  }
}

void Search::score(Scored& scored) {
  std::optional<plan::StepEstimate>& known = estimates_[fingerprint(scored.plan)];
  if (!known.has_value()) {
    plan::Plan whole = scored.plan;
    materialise(whole);
    known = cost_model_.step(whole, workload_);
    say(scored, known->step_time);
    if (on_simulated_) {
      on_simulated_(scored.plan, known->step_time);
    }
  }
  scored.estimate = *known;
}

bool Search::score_below(Scored& scored, Duration limit) {
  std::optional<plan::StepEstimate>& known = estimates_[fingerprint(scored.plan)];
  if (!known.has_value()) {
    plan::Plan whole = scored.plan;
    materialise(whole);
    known = cost_model_.step_below(whole, workload_, limit);
    say(scored, known ? std::optional(known->step_time) : std::nullopt);
  }
  if (!known.has_value() || known->step_time >= limit) {
    return false;
  }
  scored.estimate = *known;
  if (on_simulated_) {
    on_simulated_(scored.plan, known->step_time);
  }
  return true;
}

void Search::say(const Scored& scored, std::optional<Duration> time) const {
  if (!options_.decisions) {
    return;
  }
  std::set<std::string> schedules;
  std::set<std::string> codecs;
  for (const std::size_t chosen : scored.chosen) {
    const Candidate& candidate = candidates_.all()[chosen];
    schedules.insert(candidate.graph.label());
    codecs.insert(codecs_text(candidate.codecs));
  }
  options_.decisions({.about = "step with buckets of " + to_string(scored.bucket_size),
                      .schedule = fmt::format("{}", fmt::join(schedules, "; ")),
                      .codecs = fmt::format("{}", fmt::join(codecs, "; ")),
                      .bound = {},
                      .time = time,
                      .outcome = time ? "simulated" : "simulated until it was slower"});
}

std::int64_t Search::transfers_of(const Scored& scored) const {
  std::int64_t transfers = 0;
  for (const std::size_t candidate : scored.chosen) {
    transfers += static_cast<std::int64_t>(candidates_.all()[candidate].graph.transfers().size());
  }
  return transfers;
}

// A step is folded as a whole, by what its schedules have in common: those of one candidate do.
std::int64_t Search::followed_of(const Scored& scored) {
  const bool is_one = std::all_of(scored.chosen.begin(), scored.chosen.end(),
                                  [&](std::size_t one) { return one == scored.chosen.front(); });
  if (!is_one) {
    return transfers_of(scored);
  }
  std::int64_t transfers = 0;
  for (const std::size_t candidate : scored.chosen) {
    transfers += static_cast<std::int64_t>(candidates_.followed_transfers(candidate));
  }
  return transfers;
}

}  // namespace rackrail::planner
