#include "planner/search/joint_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/batch/batch.hpp"
#include "planner/groups/many_ranks.hpp"

namespace rackrail::planner {

namespace {

bool same_samples(const plan::BatchPlan& a, const plan::BatchPlan& b) {
  return a.local_batch == b.local_batch && a.accumulation == b.accumulation;
}

void lower(std::map<std::string, Duration>& times, const std::string& name, Duration time) {
  const auto [it, is_new] = times.emplace(name, time);
  if (!is_new) {
    it->second = std::min(it->second, time);
  }
}

}  // namespace

double seconds_per_useful_sample(const plan::Workload& workload, const plan::BatchPlan& batch,
                                 Duration step) {
  const std::int64_t samples = batch.global_batch();
  return step.seconds() /
         (static_cast<double>(samples) * statistical_efficiency(workload, samples));
}

bool is_batch_searched(const PlannerOptions& options, const plan::Workload& workload,
                       const BatchSpace& space) {
  return options.batch_policy == BatchPolicy::kGoodput && workload.noise_scale.has_value() &&
         !space.is_settled();
}

JointSearch::JointSearch(const plan::Workload& workload, const PlannerOptions& options,
                         const BatchSpace& space, Search& search, std::vector<Bytes> bucket_sizes)
    : workload_(workload),
      options_(options),
      space_(space),
      search_(search),
      sizes_(std::move(bucket_sizes)),
      usual_size_(options.bucket_size.value_or(kUsualBucket)),
      usual_family_([name = options.schedule.value_or(kUsualFamily)](const Candidate& candidate) {
        return (candidate.family == name && !candidate.is_step_form) || candidate.only_protected;
      }) {}

double JointSearch::cost(const Search::Scored& scored) const {
  return seconds_per_useful_sample(workload_, scored.plan.batch, scored.estimate.step_time);
}

bool JointSearch::keeps_to(const Search::Scored& scored, const CandidateFilter& limit) const {
  return std::all_of(scored.chosen.begin(), scored.chosen.end(), [&](std::size_t candidate) {
    return limit(search_.candidates().all()[candidate]);
  });
}

bool JointSearch::is_stopped() {
  was_stopped_ = was_stopped_ || (options_.stop && options_.stop());
  return was_stopped_;
}

bool JointSearch::is_quick_to_the_end() const {
  return options_.effort == SearchEffort::kQuick &&
         !(options_.stop_report && options_.stop_report());
}

void JointSearch::begin_phase(std::size_t pieces) {
  phase_begin_ = phase_end_;
  phase_end_ += (1 - phase_end_) / 3;
  pieces_ = pieces;
  done_ = 0;
}

void JointSearch::report(const std::string& what) {
  if (options_.progress) {
    const double share = std::min(1.0, static_cast<double>(done_++) / static_cast<double>(pieces_));
    options_.progress(phase_begin_ + (phase_end_ - phase_begin_) * share, what);
  }
}

std::size_t JointSearch::pieces_of(const Knobs& knobs) const {
  const std::size_t drafts = std::size(kCodecLimits) + (knobs.may_compress ? 1 : 0);
  const std::size_t refinements = knobs.may_compress ? 2 : 1;
  return 2 * drafts * knobs.sizes.size() + refinements;  // each draft is made and simulated
}

// Every bucket size with every limit on codecs: compression that hides behind compute, or that
// makes small buckets slower, loses against its own uncompressed form here.
std::vector<JointSearch::Trial> JointSearch::drafts(const Knobs& knobs, Bytes size,
                                                    const plan::BatchPlan& batch,
                                                    bool may_be_none) {
  std::vector<Trial> trials;
  const auto may_end = [&] { return (may_be_none || !trials.empty()) && is_stopped(); };
  for (const auto& [name, limit] : kCodecLimits) {
    if (may_end()) {
      return trials;
    }
    report(fmt::format("routes for buckets of {}", to_string(size)));
    if (auto draft = search_.draft({name, size, both(limit, knobs.candidates)}, batch)) {
      trials.push_back({name, *std::move(draft)});
    }
  }
  if (knobs.may_compress && !may_end()) {
    report(fmt::format("codecs for buckets of {}", to_string(size)));
    if (auto draft = search_.compress(size, batch, knobs.candidates)) {
      trials.push_back({"", *std::move(draft)});
    }
  }
  return trials;
}

std::vector<JointSearch::Trial*> JointSearch::most_promising_first(std::span<Trial> trials) const {
  std::vector<Trial*> order;
  for (Trial& trial : trials) {
    order.push_back(&trial);
  }
  const auto place = [this](const Trial* trial) {
    return std::pair(!search_.is_affordable(trial->draft),
                     std::max(trial->draft.expected, trial->draft.at_least));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Trial* a, const Trial* b) { return place(a) < place(b); });
  return order;
}

std::optional<JointSearch::Found> JointSearch::optimise(const Knobs& knobs,
                                                        const plan::BatchPlan& batch,
                                                        std::optional<Search::Scored> start,
                                                        bool may_be_none) {
  Found found;
  std::optional<Duration> fastest;
  if (start.has_value()) {
    fastest = start->estimate.step_time;
    may_be_none = true;
  }
  const auto simulate_all = [&](std::span<Trial> trials) {
    for (Trial* trial : most_promising_first(trials)) {
      if ((may_be_none || fastest.has_value()) && is_stopped()) {
        break;
      }
      simulate(*trial, fastest, found, may_be_none || fastest.has_value());
    }
  };
  std::vector<Trial> trials;
  const bool at_once = options_.stop && batch.local_batch.size() < kVeryManyRanks;
  for (const Bytes size : knobs.sizes) {
    std::vector<Trial> of_size = drafts(knobs, size, batch, may_be_none || !trials.empty());
    const std::size_t before = trials.size();
    std::ranges::move(of_size, std::back_inserter(trials));
    if (at_once) {
      simulate_all(std::span(trials).subspan(before));
    }
  }
  if (!at_once) {
    simulate_all(trials);
  }
  if (!fastest.has_value()) {
    return std::nullopt;
  }
  // The first that is as good as the fastest: those after it are larger or stronger.
  const Duration good_enough = scaled(*fastest, 1 / (1 - kWorthwhile));
  if (start.has_value() && start->estimate.step_time <= good_enough) {
    found.best = *std::move(start);
  } else {
    found.best =
        std::find_if(trials.begin(), trials.end(), [&](const Trial& trial) {
          return trial.is_simulated && trial.draft.scored.estimate.step_time <= good_enough;
        })->draft.scored;
  }
  found.fastest = *fastest;
  refine(found, knobs.candidates, knobs.may_compress);
  return found;
}

void JointSearch::simulate(Trial& trial, std::optional<Duration>& fastest, Found& found,
                           bool may_be_interrupted) {
  Search::Draft& draft = trial.draft;
  Duration limit = CandidateSet::kNoLimit;
  if (fastest.has_value()) {
    if (!search_.is_affordable(draft)) {
      return;
    }
    // Neither the result, nor the fastest under its limit, are of interest above this.
    const Duration good_enough = scaled(*fastest, 1 / (1 - kWorthwhile));
    const auto rival = found.best_of.find(trial.limit);
    const bool is_first = !trial.limit.empty() && rival == found.best_of.end();
    if (!is_first) {
      limit = trial.limit.empty() ? good_enough : std::max(good_enough, rival->second);
      if (!search_.may_beat(draft, limit)) {
        return;
      }
      limit = limit + Duration(1);
    }
  }
  report(fmt::format("buckets of {}", to_string(draft.scored.bucket_size)));
  if (!may_be_interrupted) {
    search_.score(draft.scored);
  } else if (!search_.score_below(draft.scored, limit)) {
    return;
  }
  trial.is_simulated = true;
  const Duration step = draft.scored.estimate.step_time;
  fastest = std::min(fastest.value_or(step), step);
  if (!trial.limit.empty()) {
    lower(found.best_of, trial.limit, step);
  }
}

void JointSearch::refine(Found& found, const CandidateFilter& candidates, bool may_compress) {
  if (may_compress && !is_stopped()) {
    report("the same codec everywhere");
    take_uniform(found, candidates);
  }
  if (!is_stopped()) {
    report("lighter codecs");
    // From the fastest of all: what one search after the other gave up would add up.
    const Duration limit = std::min(scaled(found.fastest, 1 + kWorthwhile), found.fastest_uniform);
    found.lightened = search_.lighten(found.best, candidates, limit);
  }
}

void JointSearch::take_uniform(Found& found, const CandidateFilter& candidates) {
  for (Search::Uniform& plan :
       search_.uniform_plans(found.best.bucket_size, found.best.plan.batch, candidates)) {
    const Duration step = plan.scored.estimate.step_time;
    if (plan.is_everywhere) {
      lower(found.uniform, plan.name, step);
    }
    for (const auto& [name, limit] : kCodecLimits) {
      if (keeps_to(plan.scored, limit)) {
        lower(found.best_of, name, step);
      }
    }
    found.fastest = std::min(found.fastest, step);
    found.fastest_uniform = std::min(found.fastest_uniform, step);
    if (step < found.best.estimate.step_time) {
      found.best = std::move(plan.scored);
    }
  }
}

Search::Scored JointSearch::with_batch(const Search::Scored& scored, const plan::BatchPlan& batch) {
  Search::Scored changed = scored;
  changed.plan.batch = batch;
  search_.score(changed);
  return changed;
}

BatchDecision JointSearch::decide(const Search::Scored& scored) {
  BatchDecision decision =
      decide_batch(workload_, space_, options_.batch_policy, [&](const plan::BatchPlan& batch) {
        // Once stopped, what was not simulated loses against what was.
        const bool is_known = same_samples(batch, scored.plan.batch);
        return is_known || is_quick_to_the_end() || !is_stopped()
                   ? with_batch(scored, batch).estimate.step_time
                   : Duration(INT64_MAX);
      });
  if (was_stopped_ && !is_quick_to_the_end()) {
    decision.notes.clear();  // they would compare with what was not simulated
  }
  return decision;
}

std::optional<Search::Scored> JointSearch::alone(const Knobs& knobs, const plan::BatchPlan& batch) {
  if (is_stopped()) {
    return std::nullopt;
  }
  std::optional<Found> found = optimise(knobs, batch, std::nullopt, true);
  return found.has_value() ? std::optional(std::move(found->best)) : std::nullopt;
}

std::vector<Bytes> JointSearch::affordable(std::vector<Bytes> sizes) const {
  // A ring over a hundred ranks in buckets of 25 MiB would take longer than the rest of the search.
  constexpr std::size_t kMostTransfersAlone = 1'000'000;
  std::size_t transfers = 0;
  for (const Candidate& candidate : search_.candidates().all()) {
    if (usual_family_(candidate)) {
      transfers = std::max(transfers, candidate.graph.transfers().size());
    }
  }
  std::erase_if(sizes, [&](Bytes size) {
    return transfers * group_tensors(workload_, size).size() > kMostTransfersAlone;
  });
  return sizes;
}

CandidateFilter JointSearch::uncompressed() const {
  return options_.codec.has_value() ? any_candidate : is_fp32;
}

std::vector<SingleKnob> JointSearch::single_knobs(const plan::BatchPlan& batch) {
  const bool lossy = search_.candidates().allowed_codecs().size() > 1;
  const std::pair<const char*, Knobs> all[] = {
      {"routes only", {{usual_size_}, uncompressed(), false}},
      {"buckets only", {affordable(sizes_), both(uncompressed(), usual_family_), false}},
      {"codecs only", {affordable({usual_size_}), usual_family_, lossy}}};
  std::size_t pieces = 0;
  for (const auto& [name, limits] : all) {
    pieces += pieces_of(limits);
  }
  begin_phase(pieces);
  std::vector<SingleKnob> knobs;
  for (const auto& [name, limits] : all) {
    if (auto scored = alone(limits, batch)) {
      knobs.push_back({name, *std::move(scored)});
    }
  }
  return knobs;
}

std::optional<SingleKnob> JointSearch::batch_alone(const plan::BatchPlan& usual) {
  const auto start =
      alone({affordable({usual_size_}), both(uncompressed(), usual_family_), false}, usual);
  if (!start.has_value()) {
    return std::nullopt;
  }
  return SingleKnob{"batch only", with_batch(*start, decide(*start).batch)};
}

void JointSearch::try_step_forms(Found& found, const Knobs& knobs) {
  const plan::BatchPlan batch = found.best.plan.batch;
  if (batch.local_batch.size() >= kVeryManyRanks || is_stopped() ||
      found.fastest <= scaled(search_.lower_bound(batch), 1 + kNearEnough)) {
    return;
  }
  begin_phase(1 + pieces_of(knobs));
  report("other routes");
  if (!search_.add_step_forms()) {
    return;
  }
  Found more = *optimise(knobs, batch, found.best);
  for (const auto& [name, time] : more.best_of) {
    lower(found.best_of, name, time);
  }
  for (const auto& [name, time] : more.uniform) {
    lower(found.uniform, name, time);
  }
  found.fastest = std::min(found.fastest, more.fastest);
  found.fastest_uniform = std::min(found.fastest_uniform, more.fastest_uniform);
  // Not what only gave up time for lighter codecs once more.
  if (more.best.estimate.step_time <= scaled(found.best.estimate.step_time, 1 - kWorthwhile / 2)) {
    found.best = std::move(more.best);
    found.lightened = more.lightened;
  }
}

JointResult JointSearch::run() {
  const bool lossy = search_.candidates().allowed_codecs().size() > 1;
  const Knobs free{sizes_, any_candidate, lossy};
  // Before they are looked at (try_step_forms), also where a search before this one made them.
  const Knobs usual{sizes_, is_no_step_form, lossy};
  const plan::BatchPlan first_batch = space_.fixed();
  begin_phase(pieces_of(usual));
  std::vector<Search::Scored> quick;
  if (options_.stop) {
    quick = first_plans(first_batch);
  }
  std::optional<Found> first = optimise(usual, first_batch, std::nullopt, !quick.empty());
  if (!first.has_value() && !quick.empty()) {
    const auto best = std::ranges::min_element(
        quick, {}, [](const Search::Scored& scored) { return scored.estimate.step_time; });
    first = Found{.best = *best, .fastest = best->estimate.step_time, .best_of = {}, .uniform = {}};
  }
  if (!first.has_value()) {
    throw ConfigError(ErrorContext{"<command line>", "options", "no plan that they allow",
                                   "options that leave a schedule for every bucket"});
  }
  Found found = *std::move(first);
  JointResult result;
  const bool batch_is_free = is_batch_searched(options_, workload_, space_);
  plan::BatchPlan others_batch = first_batch;  // of the knobs other than the batch, alone
  BatchDecision decision = decide(found.best);
  result.notes = std::move(decision.notes);
  if (!same_samples(decision.batch, first_batch)) {
    begin_phase(pieces_of(usual));
    found = *optimise(usual, decision.batch, with_batch(found.best, decision.batch));
  }
  if (!batch_is_free) {
    others_batch = decision.batch;
  }
  try_parts(found);
  try_step_forms(found, free);
  const plan::BatchPlan usual_batch = space_.even(others_batch);
  const bool divides_batch = !same_samples(usual_batch, others_batch);
  result.alone = single_knobs(usual_batch);
  if (batch_is_free || divides_batch) {
    if (auto knob = batch_alone(usual_batch)) {
      result.alone.push_back(*std::move(knob));
    }
  }
  const auto take_if_better = [&](const Search::Scored& rival) {
    if (cost(rival) >= cost(found.best)) {
      return;
    }
    if (!same_samples(rival.plan.batch, found.best.plan.batch)) {
      Found at_its_batch = *optimise(free, rival.plan.batch, rival);
      if (cost(at_its_batch.best) >= cost(found.best)) {
        at_its_batch.best = rival;
        at_its_batch.lightened = 0;
      }
      found = std::move(at_its_batch);
    }
    if (cost(rival) < cost(found.best)) {
      found.best = rival;
      found.lightened = 0;
    }
  };
  for (const SingleKnob& knob : result.alone) {
    take_if_better(knob.scored);
  }
  if (is_stopped()) {
    for (const Search::Scored& scored : quick) {
      take_if_better(scored);
    }
  }
  // A plan that keeps to a limit counts as found under it, whichever search it came from.
  const auto count_in = [&](const Search::Scored& scored) {
    for (const auto& [name, limit] : kCodecLimits) {
      if (keeps_to(scored, limit) && same_samples(scored.plan.batch, found.best.plan.batch)) {
        lower(found.best_of, name, scored.estimate.step_time);
      }
    }
  };
  count_in(found.best);
  for (const SingleKnob& knob : result.alone) {
    count_in(knob.scored);
  }
  result.best = std::move(found.best);
  result.best_of = std::move(found.best_of);
  result.uniform = std::move(found.uniform);
  result.lightened = found.lightened;
  result.was_stopped = is_stopped();  // also while candidates were timed
  return result;
}

}  // namespace rackrail::planner
