// One search over routes, buckets, codecs and batch, seeded with what each of them alone reaches.
//
// Plans are compared by seconds per useful sample, T(B)/(B·E(B)), which is their step time where
// the batch is no knob.
//
// 1. Every bucket size × limit on codecs, with the cheapest routes per bucket, and beside them the
//    compression search; then the batch by goodput with the plan so found, and the same again at
//    that batch.
// 2. Choosing routes per bucket by the collective alone is greedy: it leaves out that buckets meet.
//    So below kVeryManyRanks every family of schedules and every codec is also searched alone, as
//    far as a bound allows that it is faster by more than half of kWorthwhile.
// 3. Where the step is still far from its bound, the fastest variants of collectives alone join the
//    candidates (step_forms.hpp), and 1 is done again from what was found. They come last, as what
//    is faster alone is not always faster among other buckets: so nothing gets slower.
// 4. A knob alone is the same search with the other three as in a baseline: the ring, 25 MiB, no
//    codec, the profiled batch with as many samples on every rank. What the caller asked for takes
//    the place of the usual value. Where such a plan wins, it is the result.
//
// Hence, where the search is not stopped,
//   seconds per useful sample (joint) ≤ seconds per useful sample (any knob alone),
//   step (joint) ≤ (1 + kWorthwhile) · step (any family or codec alone),
// the first for plans of a knob with at most a million transfers (a ring of 25 MiB buckets: about a
// hundred ranks), the second as far as the search's own steps go: uniform codecs that win only with
// a family that loses otherwise are not looked for, nor variants of 3 that are not the fastest of
// all families, by which a family alone was up to 1.7 % faster on five unequal hosts
// (tests/property/planner/one_part_property_test.cpp).
//
// Plans are made as drafts first, simulated in the order of what is expected of them, and left out
// where they cannot be the best (search.hpp). Of those that are as fast as the fastest, within
// kWorthwhile, the first one made is the result, so the order of simulation changes nothing.
//
// Where the caller may stop the search, it has good plans early. Sketches (Search::sketch) cost one
// simulated step each: those of the schedules that are made soonest come before forests are made,
// those of all schedules after that. These plans count where the search was stopped, and change
// nothing where it was not.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/batch/batch_space.hpp"
#include "planner/batch/goodput.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/options.hpp"
#include "planner/search/search.hpp"

namespace rackrail::planner {

/// Bucket size of PyTorch's DistributedDataParallel.
inline constexpr Bytes kUsualBucket = Bytes(25 << 20);
inline constexpr const char* kUsualFamily = "ring";

/// Seconds until a sample that is worth one at the base batch: step / (B·E(B)).
double seconds_per_useful_sample(const plan::Workload& workload, const plan::BatchPlan& batch,
                                 Duration step);

/// The best plan with one knob free and the others at their usual values.
struct SingleKnob {
  /// "routes only", "buckets only", "codecs only"; "batch only", where it is searched or devices
  /// differ.
  std::string name;
  Search::Scored scored;
};

struct JointResult {
  Search::Scored best;
  /// Shortest step at the same batch by limit on codecs: "best fp32", "best fp16", "best".
  std::map<std::string, Duration> best_of;
  std::map<std::string, Duration> uniform;  ///< by Search::Uniform::name
  int lightened = 0;                        ///< buckets with a lighter codec than the fastest
  /// Those that the options leave free; absent are knobs that were stopped before they had a plan,
  /// and those with too many transfers to simulate.
  std::vector<SingleKnob> alone;
  std::vector<std::string> notes;  ///< about the batch
  bool was_stopped = false;        ///< by PlannerOptions::stop
  bool is_near_bound = false;      ///< PlannerOptions::enough_gap ended the search
  bool was_quick = false;          ///< it ended because the rest was not worth the wait
  bool is_complete() const { return !was_stopped && !is_near_bound && !was_quick; }
};

/// Whether the batch is one of the things that are chosen.
bool is_batch_searched(const PlannerOptions& options, const plan::Workload& workload,
                       const BatchSpace& space);

class JointSearch {
 public:
  /// Keeps references to all that it is made from; `bucket_sizes` are those to try.
  JointSearch(const plan::Workload& workload, const PlannerOptions& options,
              const BatchSpace& space, Search& search, std::vector<Bytes> bucket_sizes);

  /// Throws ConfigError when the options leave no plan.
  JointResult run();
  /// After a search that ended before it came to this: the same codecs for all buckets, of which
  /// the fastest may become the plan; then lighter codecs where they cost no time. With very many
  /// ranks that takes longer than the search.
  void finish_quickly(JointResult& result);
  /// For PlannerOptions::enough_gap, before run(): the first plan in FP32 whose step takes no more
  /// than `enough`, of the batch that is not searched. Of those that are made soonest only, where
  /// ranks are very many. None where nothing else than FP32 would be tried, either.
  std::optional<JointResult> near_enough_in_fp32(Duration enough);

 private:
  struct Knobs {
    std::vector<Bytes> sizes;
    CandidateFilter candidates;
    bool may_compress = false;
  };
  /// A plan that may be simulated.
  struct Trial {
    std::string limit;  ///< its key in Found::best_of; empty: of the compression search
    Search::Draft draft;
    bool is_simulated = false;
  };
  struct Found {
    Search::Scored best;
    Duration fastest;  ///< step of all that was simulated: best may take kWorthwhile more
    /// Of the same codec everywhere: best takes no more.
    Duration fastest_uniform = CandidateSet::kNoLimit;
    std::map<std::string, Duration> best_of;
    std::map<std::string, Duration> uniform;
    int lightened = 0;
  };

  /// For a search that may be stopped: what is found soonest.
  std::vector<Search::Scored> first_plans(const plan::BatchPlan& batch);
  /// The best of `plans` and of sketches of every bucket size, under each of the limits, is added
  /// to them; those that may be the best by their bounds first.
  void add_sketches(std::vector<Search::Scored>& plans, const plan::BatchPlan& batch,
                    std::span<const CandidateFilter> limits);
  std::vector<Trial> drafts(const Knobs& knobs, Bytes size, const plan::BatchPlan& batch,
                            bool may_be_none);
  /// Those with too many transfers last.
  std::vector<Trial*> most_promising_first(std::span<Trial> trials) const;
  /// `start`, if any, is among what is compared. Without one there is a plan all the same when the
  /// search was stopped, unless there may be none.
  std::optional<Found> optimise(const Knobs& knobs, const plan::BatchPlan& batch,
                                std::optional<Search::Scored> start = std::nullopt,
                                bool may_be_none = false);
  /// One family after another, then one codec after another, instead of `found` where faster.
  void try_parts(Found& found);
  /// Plans of candidates of one kind instead of `found` where faster.
  void try_part(Found& found, const CandidateFilter& part, const std::string& name);
  /// The same codec everywhere instead of `found`, on its buckets, where faster.
  void take_uniform(Found& found, const CandidateFilter& candidates);
  /// The same codec everywhere, then lighter ones, in what was found among `candidates`.
  void refine(Found& found, const CandidateFilter& candidates, bool may_compress);
  /// Simulates it unless it can neither be the result nor the fastest under its limit.
  void simulate(Trial& trial, std::optional<Duration>& fastest, Found& found,
                bool may_be_interrupted);
  std::optional<Search::Scored> alone(const Knobs& knobs, const plan::BatchPlan& batch);
  /// The step of `scored` with another batch.
  Search::Scored with_batch(const Search::Scored& scored, const plan::BatchPlan& batch);
  /// Looks once more, from what was found, among schedules for collectives alone, too.
  void try_step_forms(Found& found, const Knobs& knobs);
  /// The batch that the policy wants for the plan's routes, buckets and codecs.
  BatchDecision decide(const Search::Scored& scored);
  /// Those in which the usual family has few enough transfers to be simulated for comparison.
  std::vector<Bytes> affordable(std::vector<Bytes> sizes) const;
  /// No codec, unless one was asked for.
  CandidateFilter uncompressed() const;
  /// Those other than the batch, at this one.
  std::vector<SingleKnob> single_knobs(const plan::BatchPlan& batch);
  /// Starting at this batch.
  std::optional<SingleKnob> batch_alone(const plan::BatchPlan& usual);
  double cost(const Search::Scored& scored) const;
  bool keeps_to(const Search::Scored& scored, const CandidateFilter& limit) const;
  bool is_stopped();
  /// A quick search ends by its work, and still compares batches; not where it was told to stop.
  bool is_quick_to_the_end() const;
  /// What follows is so many pieces of work, in the progress that is shown a third of what is left.
  void begin_phase(std::size_t pieces);
  void report(const std::string& what);
  /// The pieces of one optimise().
  std::size_t pieces_of(const Knobs& knobs) const;

  const plan::Workload& workload_;
  const PlannerOptions& options_;
  const BatchSpace& space_;
  Search& search_;
  std::vector<Bytes> sizes_;
  Bytes usual_size_;
  CandidateFilter usual_family_;
  bool was_stopped_ = false;
  double phase_begin_ = 0;
  double phase_end_ = 0;
  std::size_t pieces_ = 1;  ///< of this phase
  std::size_t done_ = 0;
};

}  // namespace rackrail::planner
