#include "planner/replan/replan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/codec_name.hpp"
#include "plan/verifier.hpp"
#include "planner/compression/compression_warmup.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/replan/kept_plan.hpp"
#include "planner/replan/link_map.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/search/step_bound.hpp"
#include "planner/search/survivors.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/buckets.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/codecs_to_try.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

using topology::Topology;

/// Whether they have the same transfers, over whatever routes.
bool is_same(const plan::TransferGraph& one, const plan::TransferGraph& other) {
  const auto what = [](const plan::Transfer& t) {
    return std::tuple(t.op, t.src, t.dst, t.chunk_begin, t.chunk_count);
  };
  return one.name() == other.name() &&
         std::ranges::equal(one.chunk_weights(), other.chunk_weights()) &&
         std::ranges::equal(one.transfers(), other.transfers(), {}, what, what);
}

class Replanner {
 public:
  Replanner(const plan::Plan& plan, const Topology& now, const LinkMap& links,
            const plan::Workload& workload, plan::CostModel& cost_model, RouteRates route_rates,
            const std::function<bool()>& stop)
      : old_(plan),
        now_(now),
        links_(links),
        workload_(workload),
        cost_model_(cost_model),
        route_rates_(route_rates),
        stop_(stop) {}

  Replan run() {
    result_.before = old_.prediction.step_time;
    is_protected_ = protected_tensors(workload_, protects_outer_layers(old_, workload_));
    reroute();
    best_ = rerouted_;
    estimate_ = step(best_);
    result_.rerouted = without_preference(estimate_.step_time);
    if (result_.touched_buckets > 0 && is_noticeably_longer() && !is_stopped()) {
      search();
    }
    finish();
    return std::move(result_);
  }

 private:
  void reroute() {
    topology::Router router = make_router(now_);
    rerouted_ = old_;
    rerouted_.schedules.clear();
    move_to(rerouted_, now_);
    frame_ = rerouted_;
    for (std::size_t s = 0; s < old_.schedules.size(); ++s) {
      Rerouted graph = rerouted(old_.schedules[s], links_, router);
      rerouted_.schedules.push_back(std::move(graph.graph));
      routes_.push_back(graph.routes);
      is_touched_.push_back(touches(old_.schedules[s], links_));
      result_.touched_schedules += is_touched_.back() ? 1 : 0;
    }
    for (const plan::Bucket& bucket : old_.buckets) {
      result_.touched_buckets += is_touched_[bucket.schedule] ? 1 : 0;
    }
  }

  plan::StepEstimate step(const plan::Plan& plan) {
    ++result_.simulated_steps;
    return cost_model_.step(plan, workload_);
  }

  /// Of a step of the best.
  Duration without_preference(Duration step) const {
    return scaled(step, 1 / (1 + cost_model_.preference(best_)));
  }

  bool is_stopped() const { return stop_ && stop_(); }

  /// Else a search is not worth it.
  bool is_noticeably_longer() const {
    return result_.rerouted > scaled(result_.before, 1 + kNearEnough);
  }

  /// Else collectives are not simulated, which takes as long as many steps, nor other families
  /// made.
  bool is_longer_than_enough() {
    return estimate_.step_time > scaled(std::max(result_.before, bound().time), 1 + kSameTime);
  }

  /// The families of the plan's own schedules first: they were the best before. The others, which
  /// take as long to be made as steps to be simulated, only where those are not enough.
  void search() {
    if (!old_.only_schedule.empty()) {
      refusal_ = graph_refusal(schedule_family(old_.only_schedule), now_, {});
      if (refusal_) {
        return;  // it keeps its transfers over other routes
      }
    }
    PlannerOptions options;
    options.schedule = schedule_to_keep(old_, now_);
    options.stop = stop_;
    options.error_budget = old_.error_budget;
    options.seed = old_.seed;
    options.route_rates = route_rates_;
    if (route_rates_ == RouteRates::kWhereKept &&
        std::any_of(old_.schedules.begin(), old_.schedules.end(),
                    [](const plan::TransferGraph& graph) { return graph.has_rates(); })) {
      options.route_rates = RouteRates::kAlways;
    }
    std::vector<std::string> in_use;
    for (const plan::TransferGraph& graph : old_.schedules) {
      if (!options.schedule || graph.name() == *options.schedule) {
        in_use.push_back(graph.name());
      }
    }
    CandidateSet candidates(now_, cost_model_, options, &workload_, in_use);
    try_likely(candidates);
    if (is_longer_than_enough() && !is_stopped() && candidates.complete()) {
      try_likely(candidates);
    }
    if (is_longer_than_enough() && may_divide_otherwise()) {
      try_other_buckets(candidates);
    }
  }

  using Allows = bool (*)(const plan::Bucket&, const Candidate&);
  static bool same_codec(const plan::Bucket& bucket, const Candidate& candidate) {
    return candidate.strongest == bucket.codec;
  }
  static bool at_most_fp16(const plan::Bucket& /*bucket*/, const Candidate& candidate) {
    return is_at_most_fp16(candidate);
  }
  static bool any(const plan::Bucket& /*bucket*/, const Candidate& /*candidate*/) { return true; }
  static constexpr Allows kAllowed[] = {same_codec, at_most_fp16, any};

  bool holds_protected(const plan::Bucket& bucket) const {
    return std::any_of(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](std::uint32_t t) { return is_protected_[t]; });
  }

  /// Candidates for buckets that may have others; the plan is made when it is worth a simulation.
  struct Trial {
    std::vector<plan::Bucket> buckets;           ///< schedules are those of the rerouted plan
    std::vector<std::optional<Choice>> choices;  ///< by bucket; none: as it was
    Duration at_least;                           ///< its step
  };

  /// What costs nothing to choose.
  void try_likely(const CandidateSet& candidates) {
    std::vector<Trial> trials;
    add_likely(candidates, rerouted_.buckets, is_touched_, trials);
    attempt_all(candidates, trials, static_cast<int>(trials.size()));
  }

  /// Trials of these buckets; those of schedules that are free may have other candidates.
  void add_likely(const CandidateSet& candidates, const std::vector<plan::Bucket>& buckets,
                  const std::vector<bool>& is_free, std::vector<Trial>& trials) const {
    const StepBound step_bound(candidates.all(), now_, workload_);
    for (const Allows allows : kAllowed) {
      trials.push_back(make_trial(candidates, step_bound, buckets, is_free, allows));
    }
  }

  /// Those that may be the fastest first; so many at most are simulated.
  void attempt_all(const CandidateSet& candidates, std::vector<Trial>& trials, int most) {
    std::ranges::stable_sort(trials, {}, &Trial::at_least);
    const int before = result_.simulated_steps;
    for (const Trial& trial : trials) {
      if (result_.simulated_steps - before < most) {
        attempt(candidates, trial);
      }
    }
  }

  /// Where nothing of the step stays as it was, and no size of buckets was asked for.
  bool may_divide_otherwise() const {
    return result_.touched_buckets == old_.buckets.size() && old_.only_bucket_size == Bytes();
  }

  /// Gradients in other buckets, with what costs nothing to choose for them.
  void try_other_buckets(const CandidateSet& candidates) {
    std::vector<Trial> trials;
    for (const Bytes size : bucket_sizes_to_try(workload_, now_.rank_count())) {
      for (const bool is_apart : {false, true}) {
        const auto groups =
            group_tensors(workload_, size, is_apart ? is_protected_ : std::vector<bool>{});
        add_likely(candidates, buckets_of(groups), {true}, trials);
      }
    }
    // Of many: a simulated step is a good part of the time that planning again may take.
    constexpr int kMostOtherBuckets = 4;
    attempt_all(candidates, trials, kMostOtherBuckets);
  }

  /// Without a schedule of their own: they count as of the first.
  std::vector<plan::Bucket> buckets_of(const std::vector<TensorGroup>& groups) const {
    std::vector<plan::Bucket> buckets;
    for (std::size_t b = 0; b < groups.size(); ++b) {
      plan::Bucket& bucket = buckets.emplace_back();
      bucket.tensors = groups[b].tensors;
      bucket.elements = groups[b].elements;
      bucket.priority = static_cast<std::uint32_t>(groups.size() - 1 - b);
      bucket.codec = old_.buckets.front().codec;
    }
    return buckets;
  }

  /// Without choices where nothing is another, or a new bucket has none. Buckets of one schedule
  /// whose sizes have as many bits get the same: a model has dozens of sizes.
  Trial make_trial(const CandidateSet& candidates, const StepBound& step_bound,
                   const std::vector<plan::Bucket>& buckets, const std::vector<bool>& is_free,
                   Allows allows) const {
    std::map<std::tuple<std::uint32_t, bool, int>, std::optional<Choice>> chosen;
    const auto choice_for = [&](const plan::Bucket& bucket) {
      const auto [known, is_first] =
          chosen.try_emplace({bucket.schedule, holds_protected(bucket),
                              std::bit_width(static_cast<std::uint64_t>(bucket.elements))});
      if (is_first) {
        known->second = candidates.likely(bucket.elements, [&](const Candidate& candidate) {
          return !candidate.only_protected &&
                 !(candidate.hurts_protected && holds_protected(bucket)) &&
                 allows(bucket, candidate);
        });
      }
      return known->second;
    };
    Trial trial{.buckets = buckets, .choices = {}, .at_least = {}};
    std::vector<TensorGroup> groups;
    std::vector<Choice> choices;
    for (plan::Bucket& bucket : trial.buckets) {
      const auto choice = is_free[bucket.schedule] ? choice_for(bucket) : std::nullopt;
      trial.choices.push_back(choice);
      if (!choice) {
        if (bucket.slice_elements == 0) return {};
        continue;
      }
      const Candidate& candidate = candidates.all()[choice->candidate];
      bucket.slice_elements = choice->slice_elements;
      bucket.codec = candidate.strongest;
      bucket.codec_tiers = candidate.codec_tiers;
      groups.push_back({bucket.tensors, bucket.elements, false});
      choices.push_back(*choice);
    }
    if (choices.empty()) {
      return {};
    }
    trial.at_least = step_bound.at_least(groups, choices, old_.batch);
    return trial;
  }

  /// What tells trials apart: of each bucket its last tensor, and what it has.
  static std::vector<std::int64_t> key_of(const Trial& trial) {
    std::vector<std::int64_t> key;
    for (std::size_t b = 0; b < trial.buckets.size(); ++b) {
      const plan::Bucket& bucket = trial.buckets[b];
      const auto& choice = trial.choices[b];
      key.insert(key.end(), {bucket.tensors.back(),
                             choice ? static_cast<std::int64_t>(choice->candidate)
                                    : -1 - static_cast<std::int64_t>(bucket.schedule),
                             bucket.slice_elements});
    }
    return key;
  }

  plan::Plan plan_of(const std::vector<Candidate>& candidates, const Trial& trial) const {
    plan::Plan plan = frame_;
    plan.buckets = trial.buckets;
    std::map<std::pair<bool, std::size_t>, std::uint32_t> numbers;  // of candidates, and of others
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      std::uint32_t& schedule = plan.buckets[b].schedule;
      const auto& choice = trial.choices[b];
      const std::size_t number = choice ? choice->candidate : schedule;
      const auto next = static_cast<std::uint32_t>(plan.schedules.size());
      const auto [it, is_new] = numbers.emplace(std::pair(choice.has_value(), number), next);
      if (is_new) {
        plan.schedules.push_back(choice ? candidates[number].graph : rerouted_.schedules[number]);
      }
      schedule = it->second;
    }
    return plan;
  }

  /// Simulates it where it may be the best so far.
  void attempt(const CandidateSet& candidates, const Trial& trial) {
    if (trial.choices.empty() || trial.at_least >= estimate_.step_time ||
        !tried_.insert(key_of(trial)).second || is_stopped()) {
      return;
    }
    plan::Plan plan = plan_of(candidates.all(), trial);
    ++result_.simulated_steps;
    if (const auto faster = cost_model_.step_below(plan, workload_, estimate_.step_time)) {
      estimate_ = *faster;
      best_ = std::move(plan);
    }
  }

  const LowerBound& bound() {
    if (bound_) return *bound_;
    const std::vector<plan::Codec> allowed =
        codecs_to_try(now_, old_.error_budget,
                      [this](const plan::Codec& codec) { return workload_.codec_error(codec); });
    bound_ = lower_bound(now_, workload_, old_.batch, allowed, is_protected_);
    return *bound_;
  }

  void finish() {
    estimate_.step_time = without_preference(estimate_.step_time);
    result_.after = estimate_.step_time;
    plan::Prediction& prediction = best_.prediction;
    const LowerBound& bound = this->bound();
    prediction.step_time = estimate_.step_time;
    prediction.sync_share = estimate_.sync_share;
    prediction.bound = bound.time;
    prediction.bound_reason = bound.reason;
    prediction.gap = estimate_.step_time / bound.time - 1;
    prediction.baselines = {{"the same plan, rerouted", result_.rerouted}};
    best_.notes = {fmt::format("planned again after links changed: {} of {} buckets touched",
                               result_.touched_buckets, old_.buckets.size())};
    if (!old_.only_schedule.empty()) {
      best_.notes.push_back(fmt::format(
          "kept to schedule {}, the only one that the plan was to have{}", old_.only_schedule,
          refusal_ ? fmt::format(": as it cannot be made anew on the changed cluster ({}), only "
                                 "routes are others",
                                 *refusal_)
                   : ""));
    }
    tell_changes();
    const plan::VerifyReport report = plan::verify(best_, &now_, &workload_);
    if (!report.ok()) {
      throw PlanError("the planner made a wrong plan: " + report.problems.front());
    }
    set_compression_warmup(best_, old_.compression_warmup_steps, workload_, cost_model_);
    result_.plan = std::move(best_);
  }

  /// What became of each bucket; where there are others, of most of its gradients.
  void tell_changes() {
    const bool is_otherwise = is_divided_otherwise();
    if (is_otherwise) {
      best_.notes.push_back(fmt::format("gradients are in {} buckets now, not in {}",
                                        best_.buckets.size(), old_.buckets.size()));
    }
    for (std::size_t b = 0; b < old_.buckets.size(); ++b) {
      const std::uint32_t before = old_.buckets[b].schedule;
      if (!is_touched_[before]) {
        continue;
      }
      const plan::Bucket& now = is_otherwise ? bucket_with(old_.buckets[b]) : best_.buckets[b];
      BucketChange change{b, bucket_name(old_, old_.buckets[b]), bucket_name(best_, now), 0};
      if (is_same(rerouted_.schedules[before], best_.schedules[now.schedule])) {
        change.routes = routes_[before];
      } else if (change.before == change.after) {
        change.after += " in other chunks";
      }
      if (is_otherwise) {
        change.after += ", in other buckets";
      }
      if (change.before != change.after || change.routes > 0) {
        result_.changes.push_back(change);
      }
    }
  }

  bool is_divided_otherwise() const {
    const auto& tensors = &plan::Bucket::tensors;
    return !std::ranges::equal(best_.buckets, old_.buckets, {}, tensors, tensors);
  }

  /// The new bucket that the old one's largest tensor is in.
  const plan::Bucket& bucket_with(const plan::Bucket& old) const {
    const std::uint32_t largest = *std::ranges::max_element(
        old.tensors, {}, [this](std::uint32_t t) { return workload_.tensors[t].elements; });
    return *std::ranges::find_if(best_.buckets, [largest](const plan::Bucket& bucket) {
      return std::ranges::binary_search(bucket.tensors, largest);
    });
  }

  const plan::Plan& old_;
  const Topology& now_;
  const LinkMap& links_;
  const plan::Workload& workload_;
  plan::CostModel& cost_model_;
  const RouteRates route_rates_;
  const std::function<bool()>& stop_;
  Replan result_;
  plan::Plan frame_;  // of plans, without schedules
  plan::Plan rerouted_;
  plan::Plan best_;
  plan::StepEstimate estimate_;
  std::optional<LowerBound> bound_;            // of the cluster as it is now; looked for once
  std::set<std::vector<std::int64_t>> tried_;  // by key_of()
  std::optional<std::string> refusal_;         // of the only family that may be used
  std::vector<bool> is_protected_;             // by tensor
  std::vector<bool> is_touched_;               // by schedule of the old plan
  std::vector<std::size_t> routes_;            // that are others, by schedule of the old plan
};

}  // namespace

Replan replan(const plan::Plan& plan, const Topology& before, const Topology& now,
              std::span<const LinkChange> changes, const plan::Workload& workload,
              plan::CostModel& cost_model, RouteRates route_rates,
              const std::function<bool()>& stop) {
  require_plan_for(plan, before, workload);
  const LinkMap links(before.link_count(), changes);
  const Interruptible interruptible(cost_model, stop);
  Replan result = Replanner(plan, now, links, workload, cost_model, route_rates, stop).run();
  std::vector<bool> is_changed_before(before.link_count());
  std::vector<bool> is_changed_now(now.link_count());
  for (const LinkChange& change : changes) {
    is_changed_before[change.link.index()] = true;
    if (const auto link = links.now(change.link)) is_changed_now[link->index()] = true;
  }
  result.bytes_before = bytes_over(plan, is_changed_before);
  result.bytes_after = bytes_over(result.plan, is_changed_now);
  return result;
}

}  // namespace rackrail::planner
