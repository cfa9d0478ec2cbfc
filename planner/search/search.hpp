// Whole plans from choices per bucket, and what they take: the state of one search.
//
// A draft is a plan that was not simulated yet. It cannot beat a step that was simulated when its
// bound (step_bound.hpp) is above that: up to 31 ranks only such drafts are left out, which changes
// no result (tests/integration/planner/pruning_test.cpp). From 32 ranks on collectives are left out
// of which other sizes say that they are slower (candidates.hpp). From 96 ranks on a simulated step
// takes seconds, and three more things are left out, which may be the best by as much as stated
// here:
//  - drafts that the timeline of compression_timeline.hpp expects to be slower by more than it may
//    be off, kTimelineDeviation;
//  - drafts of which more than kMostTransfersOfStep transfers would be simulated, unless none has
//    fewer;
//  - collectives at sizes that are no powers of two (candidates.hpp).
// PlannerOptions::exhaustive undoes all but the second of these three.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/compression/compression.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/options.hpp"
#include "planner/search/step_bound.hpp"
#include "planner/tuning/buckets.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

/// A way to plan the whole step: bucket size and which candidates are considered.
struct Policy {
  std::string name;
  Bytes bucket_size;
  CandidateFilter filter;
};

/// How far the timeline may be off for a choice of codecs
/// (tests/integration/planner/compression_test).
inline constexpr double kTimelineDeviation = 0.03;

/// Keeps references to all that it is made from. While searching, Bucket::schedule is the
/// candidate's number; see materialise().
class Search {
 public:
  Search(const topology::Topology& topology, const plan::Workload& workload,
         plan::CostModel& cost_model, const PlannerOptions& options);

  struct Scored {
    plan::Plan plan;
    plan::StepEstimate estimate;
    std::vector<std::size_t> chosen;  ///< candidate per bucket
    Bytes bucket_size;
  };

  struct Draft {
    Scored scored;  ///< without the estimate
    /// Step by the timeline; zero below kVeryManyRanks, and once the search was stopped.
    Duration expected;
    Duration at_least;  ///< no simulation says less
  };

  const CandidateSet& candidates() const { return candidates_; }
  /// CandidateSet::complete(), of which what was found so far stays right.
  void complete();
  /// CandidateSet::add_step_forms(), in the same way.
  bool add_step_forms();
  /// planner::lower_bound() of steps, with the codecs that are allowed.
  Duration lower_bound(const plan::BatchPlan& batch) const;
  /// By tensor (planner/tuning/buckets.hpp).
  const std::vector<bool>& protected_by_tensor() const { return protected_; }

  /// Instead of what the options say; for everything that follows.
  void protect_outer_layers(bool outer_layers);

  /// Each bucket takes the candidate that is cheapest alone among those of the policy; none when
  /// the policy leaves a bucket without.
  std::optional<Draft> draft(const Policy& policy, const plan::BatchPlan& batch);
  /// The same where only a step of less than `limit` is of interest: none where the policy has
  /// none by its bound, or by what its collectives take alone, of which no more are timed than that
  /// needs. For few of a policy's candidates at a time: the bound has only what all of them share.
  std::optional<Draft> draft_below(const Policy& policy, const plan::BatchPlan& batch,
                                   Duration limit);
  /// What draft() may come to, without a simulation: each bucket takes the candidate that may be
  /// the fastest by its closed form. For a search that may be stopped; it changes no other draft.
  std::optional<Draft> sketch(const Policy& policy, const plan::BatchPlan& batch);
  /// The draft, simulated.
  std::optional<Scored> evaluate(const Policy& policy, const plan::BatchPlan& batch);
  /// Codecs per bucket and tier by the compression search over the whole step, on buckets of this
  /// size, with the protected tensors apart where that is faster; none when the filter leaves a
  /// bucket without a candidate.
  std::optional<Draft> compress(Bytes bucket_size, const plan::BatchPlan& batch,
                                const CandidateFilter& filter);
  /// Whether a draft has few enough transfers to be simulated beside others, or few enough that
  /// stand for all of them. Below kVeryManyRanks all have.
  bool is_affordable(const Draft& draft);
  /// Whether a draft could be faster than this step, for all that is known without simulating it.
  bool may_beat(const Draft& draft, Duration step) const;
  /// The same pair of codecs wherever a bucket may have it, for each pair; protected tensors are in
  /// buckets of their own where the pair would hurt them or that is faster. From kVeryManyRanks on
  /// only those that may be the best by what the timeline says.
  struct Uniform {
    std::string name;  ///< CompressionTable::Uniform::name
    Scored scored;
    bool is_everywhere = true;  ///< CompressionTable::Uniform::is_everywhere
  };
  std::vector<Uniform> uniform_plans(Bytes bucket_size, const plan::BatchPlan& batch,
                                     const CandidateFilter& filter);
  /// Lighter codecs where the step becomes no longer than `limit` by it: overlap hides the extra
  /// bytes. By the timeline, as far as simulation agrees. Returns the number of buckets that it
  /// changed.
  int lighten(Scored& best, const CandidateFilter& filter, Duration limit);
  /// CandidateSet::cheapest(), whose times are shared.
  std::optional<Choice> cheapest(std::int64_t elements, const CandidateFilter& filter) {
    return candidates_.cheapest(elements, filter);
  }
  /// Another candidate for a bucket; score() is then due.
  void set_choice(Scored& scored, std::size_t bucket, const Choice& choice) const;
  /// Simulates the step, after a change of the plan; a plan that was simulated before is not again.
  void score(Scored& scored);
  /// The same where only a step of less than `limit` is of interest: whether it is, which is found
  /// sooner where it is not. False, too, where the search was stopped meanwhile.
  [[nodiscard]] bool score_below(Scored& scored, Duration limit);
  /// Called with every step that was simulated to its end.
  void on_simulated(std::function<void(const plan::Plan&, Duration step)> listener) {
    on_simulated_ = std::move(listener);
  }
  /// A plan that leaves the search has only the schedules that it uses, each once.
  void materialise(plan::Plan& plan) const;

 private:
  using Choose =
      std::function<std::optional<Choice>(std::int64_t elements, const CandidateFilter& filter)>;
  /// For a group; protected ones have no candidate that hurts them where groups are `mixed`.
  static std::optional<Choice> choose_for(const TensorGroup& group, bool is_mixed,
                                          const CandidateFilter& filter, const Choose& choose);
  /// One for each group; fewer where one has none. The time of the group's collective alone must be
  /// below its limit, if there are limits; then the last group is looked at first.
  std::vector<Choice> choose(const std::vector<TensorGroup>& groups, const CandidateFilter& filter,
                             const std::vector<Duration>& limits = {});
  std::vector<Choice> choose_below(const std::vector<TensorGroup>& groups,
                                   const CandidateFilter& filter, const plan::BatchPlan& batch,
                                   Duration limit);
  /// To the log of decisions; `time`: none where the simulation was ended.
  void say(const Scored& scored, std::optional<Duration> time) const;
  /// Not simulated yet.
  Scored scored_of(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                   Bytes bucket_size, const plan::BatchPlan& batch);
  Draft drafted(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                Bytes bucket_size, const plan::BatchPlan& batch);
  /// Of the candidates that the filter accepts and of no others: codecs are then looked for as they
  /// are where an option leaves only those.
  const ScheduleLoads& loads(const CandidateFilter& filter);
  void look_at_all_candidates();  ///< once there are more
  bool expects() const;
  /// A group with a protected tensor in it counts as protected.
  std::vector<TensorGroup> groups_of(Bytes bucket_size, bool separate_protected) const;
  std::vector<TensorGroup> groups_in(const plan::Plan& plan) const;
  bool holds_protected(const std::vector<std::uint32_t>& tensors) const;
  CompressionTable table_for(const std::vector<TensorGroup>& groups, const plan::BatchPlan& batch,
                             const CandidateFilter& filter);
  plan::Plan assemble(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                      const plan::BatchPlan& batch);
  void set_schedule(plan::Plan& plan, std::size_t bucket, const Choice& choice) const;
  std::int64_t transfers_of(const Scored& scored) const;
  /// Of them, those that are simulated.
  std::int64_t followed_of(const Scored& scored);

  const topology::Topology& topology_;
  const plan::Workload& workload_;
  plan::CostModel& cost_model_;
  const PlannerOptions& options_;
  std::vector<bool> protected_;
  CandidateSet candidates_;
  std::map<std::vector<bool>, ScheduleLoads> loads_;  ///< by what is accepted, when first needed
  std::optional<StepBound> bound_;  ///< always one; made anew with more candidates
  /// By what differs; none of what was not simulated to its end.
  std::map<std::vector<std::int64_t>, std::optional<plan::StepEstimate>> estimates_;
  std::function<void(const plan::Plan&, Duration)> on_simulated_;
};

}  // namespace rackrail::planner
