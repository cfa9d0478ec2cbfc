#include "planner/search/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/parse_units.hpp"
#include "planner/batch/batch.hpp"
#include "planner/groups/many_ranks.hpp"

namespace rackrail::planner {

namespace {

/// Steps of other plans, held against that of the finished one.
class Comparison {
 public:
  /// With `tells_batches`, told() says how many samples a rank has.
  Comparison(const ReportInput& input, bool tells_batches)
      : workload_(input.workload),
        search_(input.search),
        cost_model_(input.cost_model),
        finished_(input.finished),
        // With more, what is told of the plan is exact, and of the others is not.
        is_exact_(finished_.plan.rank_count() < kVeryManyRanks),
        step_(is_exact_ ? finished_.plan.prediction.step_time : step_of(finished_.scored)),
        is_divided_(step_ != step_of(finished_.scored)),
        cost_(cost_of(finished_.plan.batch, step_)),
        tells_batches_(tells_batches) {}

  bool is_exact() const { return is_exact_; }

  /// As a plan's prediction has it.
  Duration step_of(const Search::Scored& other) const {
    plan::Plan plan = other.plan;
    search_.materialise(plan);
    return without_preference(plan, other.estimate.step_time);
  }

  Alternative against(std::string name, std::string what, const plan::BatchPlan& batch,
                      Duration step) const {
    return {std::move(name), std::move(what), step, batch.global_batch(),
            cost_of(batch, step) / cost_ - 1};
  }
  Alternative against(std::string name, std::string what, const Search::Scored& other) const {
    return against(std::move(name), std::move(what), other.plan.batch, step_of(other));
  }
  /// The finished plan with one choice undone.
  std::vector<Alternative> undone(std::vector<Rival> rivals) const {
    std::vector<Alternative> alternatives;
    alternatives.reserve(rivals.size() + 1);
    for (Rival& rival : rivals) {
      alternatives.push_back(against(std::move(rival.name), std::move(rival.what),
                                     rival.scored.plan.batch, step_beside_finished(rival.scored)));
    }
    if (is_divided_) {
      alternatives.push_back(against(
          "fine division", "large buckets in fewer pieces, and routes at the rates of the search",
          finished_.scored));
    }
    return alternatives;
  }
  /// What runs without a planner, or with one knob of it, which has a batch of its own.
  Alternative told(const std::string& name, const std::string& what,
                   const Search::Scored& other) const {
    return against(
        name,
        tells_batches_ ? fmt::format("{}; {}", what, local_batch_text(other.plan.batch)) : what,
        other);
  }

 private:
  double cost_of(const plan::BatchPlan& batch, Duration step) const {
    return seconds_per_useful_sample(workload_, batch, step);
  }

  Duration without_preference(const plan::Plan& plan, Duration step) const {
    return scaled(step, 1 / (1 + cost_model_.preference(plan)));
  }

  /// Of one that has the finished plan's division of the buckets that are as the search had them.
  Duration step_beside_finished(const Search::Scored& other) const {
    const Search::Scored& scored = finished_.scored;
    if (!is_divided_ || other.chosen.size() != scored.chosen.size()) {
      return step_of(other);
    }
    plan::Plan plan = other.plan;
    search_.materialise(plan);
    const auto first = static_cast<std::uint32_t>(plan.schedules.size());
    plan.schedules.insert(plan.schedules.end(), finished_.plan.schedules.begin(),
                          finished_.plan.schedules.end());
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      plan::Bucket& bucket = plan.buckets[b];
      const plan::Bucket& of_search = scored.plan.buckets[b];
      if (other.chosen[b] == scored.chosen[b] && bucket.tensors == of_search.tensors &&
          bucket.slice_elements == of_search.slice_elements) {
        bucket.schedule = first + finished_.plan.buckets[b].schedule;
        bucket.slice_elements = finished_.plan.buckets[b].slice_elements;
      }
    }
    return without_preference(plan, cost_model_.step(plan, workload_).step_time);
  }

  const plan::Workload& workload_;
  const Search& search_;
  plan::CostModel& cost_model_;
  const FinishedPlan& finished_;
  bool is_exact_;
  Duration step_;  ///< of the finished plan
  bool is_divided_;
  double cost_;
  bool tells_batches_;
};

/// Fastest first; of the choices that were undone, those that bought most.
void sort_by_cost(PlanReport& report) {
  const auto by_cost = [](const Alternative& a, const Alternative& b) {
    return a.against_plan < b.against_plan;
  };
  std::ranges::stable_sort(report.baselines, by_cost);
  std::ranges::stable_sort(report.single_knobs, by_cost);
  std::ranges::stable_sort(report.choices,
                           [&](const auto& a, const auto& b) { return by_cost(b, a); });
}

CandidateFilter family_with(const char* family, plan::CodecKind codec) {
  return [family, codec](const Candidate& c) {
    return c.family == family && c.codecs.inside.kind == codec && c.codecs.across.kind == codec;
  };
}

// Absent where the options leave no such plan; not reached where the search was stopped.
enum class Answer { kAbsent, kNotReached, kSimulated };

Answer simulate(Search& search, const Policy& policy, const plan::BatchPlan& batch,
                Search::Scored& scored) {
  std::optional<Search::Draft> draft = search.draft(policy, batch);
  if (!draft.has_value()) {
    return Answer::kAbsent;
  }
  scored = std::move(draft->scored);
  return search.score_below(scored, CandidateSet::kNoLimit) ? Answer::kSimulated
                                                            : Answer::kNotReached;
}

}  // namespace

std::vector<Rival> usual_plans(Search& search, const plan::Workload& workload,
                               const plan::BatchPlan& batch,
                               std::vector<std::string>& not_reached) {
  std::vector<Rival> usual;
  using enum plan::CodecKind;
  struct Kind {
    const char* name;
    const char* what;
    Bytes bucket_size;
    CandidateFilter filter;
  };
  const Bytes all = workload.gradient_bytes();
  const Kind kinds[] = {
      {"NCCL-like ring", "FP32 ring, all gradients in one message after backward", all,
       family_with("ring", kNone)},
      {"NCCL-like tree", "FP32 double binary tree, all gradients in one message after backward",
       all, family_with("double-binary-tree", kNone)},
      {"DDP-like", "FP32 ring, buckets of 25 MiB: the naive baseline", kUsualBucket,
       family_with("ring", kNone)},
      {"DDP-like, FP16", "FP16 ring, buckets of 25 MiB", kUsualBucket, family_with("ring", kFp16)},
      {"parameter server", "FP32 parameter server, buckets of 25 MiB", kUsualBucket,
       family_with("parameter-server", kNone)}};
  for (const Kind& kind : kinds) {
    Search::Scored scored;
    const Answer answer =
        simulate(search, {kind.name, kind.bucket_size, kind.filter}, batch, scored);
    if (answer == Answer::kSimulated) {
      usual.push_back({kind.name, kind.what, std::move(scored)});
    } else if (answer == Answer::kNotReached) {
      not_reached.emplace_back(kind.name);
    }
  }
  return usual;
}

namespace {

std::vector<Rival> baselines_of(Search& search, const plan::Workload& workload,
                                const std::vector<Bytes>& sizes, const plan::BatchPlan& batch,
                                std::vector<std::string>& not_reached) {
  std::vector<Rival> baselines = usual_plans(search, workload, batch, not_reached);
  using enum plan::CodecKind;
  constexpr const char* kAllFp16 = "all FP16";
  const CandidateFilter is_fp16 = [](const Candidate& c) {
    return c.codecs.inside.kind == kFp16 && c.codecs.across.kind == kFp16;
  };
  std::optional<Search::Scored> fp16;
  for (const Bytes size : sizes) {
    Search::Scored scored;
    const Answer answer = simulate(search, {kAllFp16, size, is_fp16}, batch, scored);
    if (answer == Answer::kNotReached) {
      not_reached.emplace_back(kAllFp16);
      return baselines;
    }
    if (answer == Answer::kSimulated &&
        (!fp16.has_value() || scored.estimate.step_time < fp16->estimate.step_time)) {
      fp16 = std::move(scored);
    }
  }
  if (fp16.has_value()) {
    std::string what =
        fmt::format("FP16 on every tier, inside hosts too, the best routes and buckets ({})",
                    to_string(fp16->bucket_size));
    baselines.push_back({kAllFp16, std::move(what), *std::move(fp16)});
  }
  return baselines;
}

/// Whether one of the plans that are compared gives some ranks more samples than others.
bool has_unequal_batches(const JointResult& found) {
  return !is_same_everywhere(found.best.plan.batch) ||
         std::ranges::any_of(found.alone, [](const SingleKnob& knob) {
           return !is_same_everywhere(knob.scored.plan.batch);
         });
}

/// Finishes another plan that was found since, where it is the faster. Whether there was one that
/// was not.
bool finish_again(const ReportInput& input) {
  if (input.found.best.estimate.step_time >= input.finished.scored.estimate.step_time) {
    return false;
  }
  // Large buckets are divided when it is finished, so the one before may be the shorter still.
  plan::Plan other = input.finish(input.found);
  if (other.prediction.step_time >= input.finished.plan.prediction.step_time) {
    return true;
  }
  input.finished = {input.found.best, std::move(other)};
  return false;
}

/// Takes the fastest of the rivals instead of what a search found that ended early, if it is faster
/// with the same batch and keeps to the options. Whether one is.
bool take_faster(Search& search, JointResult& found, const std::vector<Rival>& rivals,
                 const PlannerOptions& options) {
  bool is_faster = false;
  for (const Rival& rival : rivals) {
    if (found.is_complete() ||
        (options.bucket_size.has_value() && rival.scored.bucket_size != *options.bucket_size)) {
      continue;
    }
    Search::Scored scored = rival.scored;
    scored.plan.batch = found.best.plan.batch;
    if (search.score_below(scored, found.best.estimate.step_time)) {
      found.best = std::move(scored);
      found.lightened = 0;
      is_faster = true;
    }
  }
  return is_faster;
}

}  // namespace

PlanReport make_report(const ReportInput& input) {
  Search& search = input.search;
  JointResult& found = input.found;
  const BatchSpace& space = input.space;
  const PlannerOptions& options = input.options;
  constexpr double kBaselines = 0.2;  // shares of the work
  constexpr double kChoices = 0.4;
  const auto progress = [&](double share, const char* what) {
    if (options.progress) {
      options.progress(share, what);
    }
  };
  PlanReport report;
  progress(0, "baselines");
  const std::vector<Rival> baselines =
      baselines_of(search, input.workload, input.bucket_sizes,
                   same_everywhere(found.best.plan.batch), report.not_reached);
  take_faster(search, found, baselines, options);
  progress(kBaselines, "each choice undone");
  std::vector<std::string> not_undone;
  std::vector<Rival> choices = undo_choices(search, found.best, space, options, not_undone);
  while (take_faster(search, found, choices, options)) {
    not_undone.clear();
    choices = undo_choices(search, found.best, space, options, not_undone);
  }
  if (finish_again(input)) {
    not_undone.clear();
    choices = undo_choices(search, input.finished.scored, space, options, not_undone);
  }
  report.not_reached.insert(report.not_reached.end(), not_undone.begin(), not_undone.end());
  const Comparison comparison(input, has_unequal_batches(found));
  for (const Rival& baseline : baselines) {
    report.baselines.push_back(comparison.told(baseline.name, baseline.what, baseline.scored));
  }
  if (!found.is_complete() && found.alone.empty()) {
    report.not_reached.emplace_back("one knob alone");
  }
  for (const SingleKnob& knob : found.alone) {
    report.single_knobs.push_back(comparison.told(
        knob.name, "only this choice planned, the others as in the baseline", knob.scored));
  }
  report.choices = comparison.undone(std::move(choices));
  if (options.protect_outer_layers && !options.codec.has_value()) {
    if (found.is_complete() || found.was_quick) {
      PlannerOptions within = options;
      if (found.was_quick) {  // so is this one
        within.stop = [limit = QuickLimit(input.finished.plan.rank_count())] {
          return limit.is_reached();
        };
      }
      within.progress = part_of(options.progress, kChoices, 1);
      search.protect_outer_layers(false);
      const JointResult free =
          JointSearch(input.workload, within, space, search, input.bucket_sizes).run();
      if (!free.was_stopped || found.was_quick) {
        // Finished as it was found: what it is held against depends on what is protected.
        report.unprotected = comparison.against(
            "unprotected", "stronger codecs than FP16 on the first and the last layer, too",
            free.best.plan.batch,
            comparison.is_exact() ? input.finish(free).prediction.step_time
                                  : comparison.step_of(free.best));
      }
      search.protect_outer_layers(true);
    }
    if (!report.unprotected.has_value()) {
      report.not_reached.emplace_back("unprotected");
    }
  }
  sort_by_cost(report);
  return report;
}

void hold_against(PlanReport& report, const plan::Plan& plan, const plan::Workload& workload) {
  const auto cost = [&](std::int64_t samples, Duration step) {
    return step.seconds() /
           (static_cast<double>(samples) * statistical_efficiency(workload, samples));
  };
  const double of_plan = cost(plan.batch.global_batch(), plan.prediction.step_time);
  for (auto* rows : {&report.baselines, &report.single_knobs}) {
    for (Alternative& row : *rows) {
      row.against_plan = cost(row.global_batch, row.step_time) / of_plan - 1;
    }
  }
  for (const Alternative& choice : report.choices) {
    report.not_reached.push_back("without " + choice.name);
  }
  report.choices.clear();
  if (report.unprotected.has_value()) {
    report.not_reached.push_back(report.unprotected->name);
    report.unprotected.reset();
  }
}

}  // namespace rackrail::planner
