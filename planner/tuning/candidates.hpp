// Schedules to choose from: every family with every allowed pair of codecs, made once, timed on
// demand by the cost model and remembered by size.
//
// A first candidate is simulated to its end, the one that was chosen at another size if there is
// one, and all others only until they are slower than the best so far. From 32 ranks on nothing is
// simulated whose time at other sizes or in FP32 says that it is slower: a collective of k times
// the bytes takes at least as long and at most k times as long, and a codec saves at most its
// ratio, within 10 % (tests/integration/planner/very_many_ranks_test.cpp).
//
// From kVeryManyRanks on only sizes that are powers of two are simulated, and times between two of
// them lie on the line through theirs: a collective is a start-up and a rate, so what it takes is
// nearly affine in the bytes while the number of slices stays the same, and in steps of the slices
// beyond. Buckets of a model have dozens of sizes, so this saves most of the simulations. Nor is a
// candidate simulated there whose bound is less than half a percent below the best time. Families
// have finer schedules only up to 65,000 transfers. All this only chooses among candidates; steps
// of whole plans are simulated as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/options.hpp"

namespace rackrail::planner {

/// For tables: by tier whose links a schedule uses the strongest codec that it has there.
std::map<std::string, plan::Codec> codecs_by_tier(const topology::Topology& topology,
                                                  const plan::TransferGraph& graph);

/// "fp32", "int8 inside, fp16 across".
std::string codecs_text(const TierCodecs& codecs);

struct Candidate {
  std::string family;
  std::size_t variant = 0;  ///< index into the family's all_reduces(), then into its step variants
  TierCodecs codecs;
  plan::TransferGraph graph;
  std::vector<plan::LinkLoad> loads;               ///< of the graph
  plan::AlphaBeta model;                           ///< of the graph
  double largest_share = 1;                        ///< of the buffer, that one transfer moves
  plan::Codec strongest;                           ///< of the codecs that are used
  std::map<std::string, plan::Codec> codec_tiers;  ///< tier of a link → strongest codec over it
  bool hurts_protected = false;                    ///< encodes beyond 16 bits
  double error = 0;             ///< relative, of a reduced gradient (plan/reduced_error.hpp)
  bool is_step_form = false;    ///< of step_forms.hpp
  bool only_protected = false;  ///< beside a codec that was asked for: for tensors it would hurt

  /// What candidates share that differ in codecs only.
  std::pair<std::string, std::size_t> shape() const { return {family, variant}; }
};

/// The best candidate for a size, how it is sliced, and the time of the collective alone.
struct Choice {
  std::size_t candidate = 0;
  std::int64_t slice_elements = 0;
  Duration time;
};

/// Which candidates a choice may fall on.
using CandidateFilter = std::function<bool(const Candidate&)>;
inline bool any_candidate(const Candidate&) { return true; }
inline bool is_no_step_form(const Candidate& c) { return !c.is_step_form; }
inline bool is_fp32(const Candidate& c) { return !c.strongest.is_lossy(); }
inline bool is_at_most_fp16(const Candidate& c) {
  return c.strongest.kind <= plan::CodecKind::kFp16;
}

class CandidateSet {
 public:
  static constexpr Duration kNoLimit = Duration(INT64_MAX);

  /// Keeps references to topology, cost model and workload. Errors of codecs are the workload's,
  /// the model's without one; what they add up to on a schedule's way is within the error budget,
  /// unless a codec was asked for, whatever it does. Throws ConfigError when nothing is left. With
  /// PlannerOptions::stop there are only the candidates that are made soonest, until complete():
  /// the same numbers mean the same. Where some of the families `first` can be used, only theirs.
  CandidateSet(const topology::Topology& topology, plan::CostModel& cost_model,
               const PlannerOptions& options, const plan::Workload* workload = nullptr,
               std::vector<std::string> first = {});

  /// Whether PlannerOptions::stop says so now.
  bool is_stopped() const { return stop_ && stop_(); }

  /// Makes all that were not made yet, a family at a time until PlannerOptions::stop. Returns
  /// whether there are more candidates than before.
  bool complete();
  /// The first time, makes schedules that families have for collectives alone candidates, too
  /// (step_forms.hpp), which takes as long as a short search; none from kVeryManyRanks on. Returns
  /// whether there are any.
  bool add_step_forms();

  const std::vector<Candidate>& all() const { return candidates_; }
  /// Whether links of the topology let bursts pass at once: collectives are timed in a row then.
  bool has_bursts() const { return has_bursts_; }
  /// What the error budget must be at least for all candidates to be within it.
  double largest_error() const;
  /// Codecs of which one encoding is within the error budget (and the one that was asked for, if
  /// one was).
  const std::vector<plan::Codec>& allowed_codecs() const { return allowed_; }
  /// CostModel::followed_transfers() of a candidate's graph.
  std::size_t followed_transfers(std::size_t candidate);
  /// None when the filter accepts no candidate that takes less than the limit. Once
  /// PlannerOptions::stop says so, the best of those that were timed: with a limit, maybe none.
  std::optional<Choice> cheapest(std::int64_t elements, const CandidateFilter& filter,
                                 Duration limit = kNoLimit);
  /// The one whose closed form is least, in the usual slices: nothing is simulated. Its time is
  /// that of the closed form, which no simulation is below.
  std::optional<Choice> likely(std::int64_t elements, const CandidateFilter& filter) const;

 private:
  /// What is known of a collective's time, by candidate, elements and slice.
  struct Known {
    std::optional<Duration> time;
    Duration at_least;  ///< while the time is not known
  };
  /// In which a candidate is simulated at a size, not none.
  std::vector<std::int64_t> slices_of(std::size_t candidate, std::int64_t elements) const;
  /// Whose time is worth knowing before others are simulated: these only until they are slower.
  std::optional<std::size_t> likely_winner(std::int64_t elements,
                                           const CandidateFilter& filter) const;
  void remember_chosen(std::size_t candidate);
  /// For the log: why the choice fell on one, and not on others.
  void say_decisions(std::int64_t elements, const CandidateFilter& filter, const Choice& best);
  /// cheapest(), where there is a limit.
  std::optional<Choice> cheapest_below(std::int64_t elements, const CandidateFilter& filter,
                                       Duration limit);
  /// None when it is not below the limit.
  std::optional<Duration> time(std::size_t candidate, std::int64_t elements,
                               std::int64_t slice_elements, Duration limit);
  std::optional<Duration> simulated(std::size_t candidate, std::int64_t elements,
                                    std::int64_t slice_elements, Duration limit);
  /// No time at this size is expected to be less. Zero where nothing is known.
  Duration expected_least(std::size_t candidate, std::int64_t elements) const;
  bool is_expected_slower(std::size_t candidate, std::int64_t elements, Duration limit) const;
  bool is_first(std::string_view family) const;
  void add_families(bool only_first);
  /// When to stop making the graphs of the next one.
  std::function<bool()> end_of_family() const;
  void add_family(const ScheduleFamily& family, const std::vector<TierCodecs>& pairs,
                  bool only_protected);
  void make_step_forms();
  /// The schedule with these codecs, if that is within the error budget.
  void add(const ScheduleFamily& family, std::size_t variant, const plan::TransferGraph& graph,
           const TierCodecs& codecs, bool only_protected);

  const topology::Topology& topology_;
  plan::CostModel& cost_model_;
  std::function<bool()> stop_;
  std::function<std::int64_t()> work_left_;
  DecisionLog decisions_;
  std::set<std::pair<std::int64_t, std::size_t>> decided_;  ///< sizes and candidates that were said
  std::optional<std::string> schedule_;                     ///< the only family, if so
  std::vector<std::string> first_;                          ///< families made before the others
  topology::Router router_;
  std::vector<TierCodecs> pairs_;
  std::size_t next_family_ = 0;
  std::vector<std::string> refusals_;
  bool interpolates_;
  bool expects_;     ///< whether other sizes and codecs say what need not be simulated
  bool has_bursts_;  ///< whether links of the topology do
  double worthwhile_;
  bool may_have_rates_;
  std::vector<std::int64_t> slices_;  ///< that are tried where ranks are few, in elements
  std::function<double(const plan::Codec&)> error_of_;  ///< of one encoding
  std::vector<plan::Codec> allowed_;
  std::optional<double> least_error_;   ///< of those beyond the error budget
  std::optional<double> error_budget_;  ///< none: whatever the codec does that was asked for
  std::vector<Candidate> candidates_;
  std::map<std::pair<std::string, std::size_t>, std::size_t> first_with_;  ///< family, variant
  std::vector<std::size_t> first_of_shape_;  ///< by candidate: the first with both
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t>, Known> known_;
  bool looked_for_step_forms_ = false;
  std::map<std::size_t, std::size_t> followed_;  ///< by candidate, where asked for
  std::vector<std::size_t> last_chosen_;         ///< by cheapest(), each once, the last one first
};

/// Limits on codecs under which a search looks for plans, by the name of what is found.
inline constexpr std::pair<const char*, bool (*)(const Candidate&)> kCodecLimits[] = {
    {"best fp32", is_fp32}, {"best fp16", is_at_most_fp16}, {"best", any_candidate}};

inline CandidateFilter both(CandidateFilter first, CandidateFilter second) {
  return [first = std::move(first), second = std::move(second)](const Candidate& candidate) {
    return first(candidate) && second(candidate);
  };
}

}  // namespace rackrail::planner
