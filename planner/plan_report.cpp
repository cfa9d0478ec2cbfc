#include "planner/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/parse_units.hpp"
#include "planner/batch.hpp"

namespace rackrail::planner {

namespace {

class Comparison {
 public:
  Comparison(const plan::Workload& workload, const Search::Scored& plan)
      : workload_(workload), cost_(cost_of(plan)) {}

  Alternative against(std::string name, std::string what, const Search::Scored& other) const {
    return {std::move(name), std::move(what), other.estimate.step_time,
            other.plan.batch.global_batch(), cost_of(other) / cost_ - 1};
  }

 private:
  double cost_of(const Search::Scored& scored) const {
    return seconds_per_useful_sample(workload_, scored.plan.batch, scored.estimate.step_time);
  }

  const plan::Workload& workload_;
  double cost_;
};

void sort_fastest_first(std::vector<Alternative>& alternatives) {
  std::stable_sort(
      alternatives.begin(), alternatives.end(),
      [](const Alternative& a, const Alternative& b) { return a.against_plan < b.against_plan; });
}

CandidateFilter family_with(const char* family, plan::CodecKind codec) {
  return [family, codec](const Candidate& c) {
    return c.family == family && c.codecs.inside.kind == codec && c.codecs.across.kind == codec;
  };
}

std::vector<Alternative> baselines_of(Search& search, const Comparison& comparison,
                                      const plan::Workload& workload,
                                      const std::vector<Bytes>& sizes,
                                      const plan::BatchPlan& batch) {
  std::vector<Alternative> baselines;
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
      {"DDP-like", "FP32 ring, buckets of 25 MiB", kUsualBucket, family_with("ring", kNone)},
      {"DDP-like, FP16", "FP16 ring, buckets of 25 MiB", kUsualBucket, family_with("ring", kFp16)},
      {"parameter server", "FP32 parameter server, buckets of 25 MiB", kUsualBucket,
       family_with("parameter-server", kNone)}};
  for (const Kind& kind : kinds) {
    if (const auto scored = search.evaluate({kind.name, kind.bucket_size, kind.filter}, batch)) {
      baselines.push_back(comparison.against(kind.name, kind.what, *scored));
    }
  }
  std::optional<Search::Scored> fp16;
  for (const Bytes size : sizes) {
    auto scored =
        search.evaluate({"all FP16", size,
                         [](const Candidate& c) {
                           return c.codecs.inside.kind == kFp16 && c.codecs.across.kind == kFp16;
                         }},
                        batch);
    if (scored.has_value() &&
        (!fp16.has_value() || scored->estimate.step_time < fp16->estimate.step_time)) {
      fp16 = std::move(scored);
    }
  }
  if (fp16.has_value()) {
    baselines.push_back(comparison.against(
        "all FP16",
        fmt::format("FP16 on every tier, inside hosts too, the best routes and buckets ({})",
                    to_string(fp16->bucket_size)),
        *fp16));
  }
  sort_fastest_first(baselines);
  return baselines;
}

}  // namespace

PlanReport make_report(Search& search, const JointResult& found, const BatchSpace& space,
                       const plan::Workload& workload, const PlannerOptions& options,
                       const std::vector<Bytes>& bucket_sizes) {
  const Comparison comparison(workload, found.best);
  PlanReport report;
  report.baselines = baselines_of(search, comparison, workload, bucket_sizes,
                                  same_everywhere(found.best.plan.batch));
  for (const SingleKnob& knob : found.alone) {
    report.single_knobs.push_back(
        comparison.against(knob.name, "the other choices as without a planner", knob.scored));
  }
  sort_fastest_first(report.single_knobs);
  report.choices = undo_choices(search, found.best, space, workload, options);
  if (options.protect_outer_layers && !options.codec.has_value() && !found.was_stopped) {
    search.protect_outer_layers(false);
    const JointResult free = JointSearch(workload, options, space, search, bucket_sizes).run();
    search.protect_outer_layers(true);
    if (!free.was_stopped) {
      report.unprotected = comparison.against(
          "unprotected", "first and last layer may be encoded beyond FP16 too", free.best);
    }
  }
  return report;
}

}  // namespace rackrail::planner
