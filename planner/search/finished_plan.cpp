#include "planner/search/finished_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/codec_name.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/batch/batch.hpp"
#include "planner/compression/compression_warmup.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/search/finer_buckets.hpp"
#include "planner/search/held_rates.hpp"
#include "planner/tuning/bound.hpp"

namespace rackrail::planner {

namespace {

// Elements of a bucket that gains by more rounds than the search makes (128 MiB), how many of them
// are looked at, each for seconds, of steps that are not near their bound.
constexpr std::int64_t kLargeBucket = std::int64_t{1} << 25U;
constexpr std::ptrdiff_t kMostLargeBuckets = 4;

constexpr const char* kNaive = "naive ring fp32 25 MiB";
constexpr const char* kDoubleTree = "double tree fp32";
constexpr const char* kParameterServer = "parameter server fp32";

std::string share_text(Duration time, Duration reference) {
  const double percent = (time / reference - 1) * 100;
  constexpr double kShown = 0.05;  // less than this is +0.0, not -0.0
  return fmt::format("{:+.1f} %", std::abs(percent) < kShown ? 0.0 : percent);
}

/// "no compression: fp32 is used everywhere; one codec for all buckets would change the step: fp16
/// +0.4 %; …", without pairs of codecs for near and far ranks.
std::string uniform_note(bool compresses, const std::map<std::string, Duration>& uniform,
                         Duration step) {
  const std::string uncompressed = plan::display_name({});
  std::vector<std::string> parts;
  for (const auto& [name, time] : uniform) {
    const bool is_pair = name.find(',') != std::string::npos;
    if (!is_pair && (compresses || name != uncompressed)) {
      parts.push_back(fmt::format("{} {}", name, share_text(time, step)));
    }
  }
  const std::string chosen = compresses ? "compression differs by bucket and tier"
                                        : "no compression: " + uncompressed + " is used everywhere";
  if (parts.empty()) {  // the time was over before
    return chosen;
  }
  return fmt::format("{}; one codec for all buckets would change the step: {}", chosen,
                     fmt::join(parts, "; "));
}

/// How much does not use the codec that was asked for.
std::string lighter_note(const plan::Codec& codec, const std::vector<plan::Bucket>& buckets) {
  std::int64_t all = 0;
  std::int64_t lighter = 0;
  for (const plan::Bucket& bucket : buckets) {
    all += bucket.elements;
    lighter += bucket.codec == codec ? 0 : bucket.elements;
  }
  return fmt::format(
      "{:.1f} % of the gradients use a more precise codec than {}, as their buckets hold norms, "
      "biases or small tensors",
      100 * static_cast<double>(lighter) / static_cast<double>(all), plan::display_name(codec));
}

void verify_or_throw(const plan::Plan& plan, const topology::Topology& topology,
                     const plan::Workload& workload) {
  const plan::VerifyReport report = plan::verify(plan, &topology, &workload);
  if (!report.ok()) {
    throw PlanError("the planner made a wrong plan: " + report.problems.front());
  }
}

void set_prediction(plan::Plan& plan, const plan::StepEstimate& estimate, const LowerBound& bound) {
  plan.prediction.step_time = estimate.step_time;
  plan.prediction.sync_share = estimate.sync_share;
  plan.prediction.bound = bound.time;
  plan.prediction.bound_reason = bound.reason;
  plan.prediction.gap = estimate.step_time / bound.time - 1;
}

/// Plans have been compared; what is told of this one, with its schedules, is what its step takes.
void take_out_preference(plan::Plan& plan, const plan::CostModel& cost_model) {
  plan::Prediction& prediction = plan.prediction;
  prediction.step_time = scaled(prediction.step_time, 1 / (1 + cost_model.preference(plan)));
  prediction.gap = prediction.step_time / prediction.bound - 1;
}

bool is_stopped(const PlannerOptions& options) { return options.stop && options.stop(); }

/// What the plan itself takes counts under the limits that it keeps to, by their names.
void count_in(const plan::Plan& plan, Duration step, std::map<std::string, Duration>& best_of) {
  const auto keeps_to = [&](plan::CodecKind limit) {
    return std::ranges::all_of(
        plan.buckets, [limit](const plan::Bucket& bucket) { return bucket.codec.kind <= limit; });
  };
  for (const auto& [name, limit] : {std::pair("best fp32", plan::CodecKind::kNone),
                                    std::pair("best fp16", plan::CodecKind::kFp16)}) {
    const auto known = best_of.find(name);
    if (known != best_of.end() && keeps_to(limit)) {
      known->second = std::min(known->second, step);
    }
  }
}

}  // namespace

bool is_without_planner(std::string_view baseline) {
  return baseline == kNaive || baseline == kDoubleTree || baseline == kParameterServer;
}

void predict_exactly(plan::Plan& plan, const plan::Workload& workload, plan::CostModel& cost_model,
                     const PlannerOptions& options) {
  if (plan.rank_count() < kVeryManyRanks) {
    return;
  }
  if (is_stopped(options)) {
    plan.notes.emplace_back("the predicted step is within 1 %: no time was left for an exact one");
    return;
  }
  std::size_t transfers = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    transfers += plan.schedules[bucket.schedule].transfers().size();
  }
  if (transfers > kMostTransfersOfStep) {
    plan.notes.emplace_back(
        "the predicted step is within 1 %: the plan has too many transfers for an exact one");
    return;
  }
  if (const auto estimate = cost_model.exact_step(plan, workload)) {
    set_prediction(plan, *estimate, {plan.prediction.bound, plan.prediction.bound_reason});
    take_out_preference(plan, cost_model);
    plan.notes.emplace_back(
        "predicted steps are within about 1 %: identical ranks are simulated once");
  }
}

plan::Plan naive_plan(const topology::Topology& topology, const plan::Workload& workload,
                      plan::CostModel& cost_model, PlannerOptions options,
                      const plan::BatchPlan& batch) {
  options.codec = plan::Codec{};
  options.schedule = "ring";
  Search search(topology, workload, cost_model, options);
  const Bytes bucket_size = options.bucket_size.value_or(kUsualBucket);
  const auto scored = search.evaluate({"naive", bucket_size, any_candidate}, batch);
  if (!scored.has_value()) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   "no ring over its ranks", "a connected cluster"});
  }
  plan::Plan plan = scored->plan;
  plan.name = "naive: " + plan.name;
  set_prediction(
      plan, scored->estimate,
      lower_bound(topology, workload, plan.batch, {plan::Codec{}}, search.protected_by_tensor()));
  search.materialise(plan);
  take_out_preference(plan, cost_model);
  plan.notes = {fmt::format("FP32 ring over the ranks, buckets of {}: {}", to_string(bucket_size),
                            bucket_size == kUsualBucket
                                ? "the usual baseline"
                                : "the usual baseline, except for the bucket size")};
  verify_or_throw(plan, topology, workload);
  return plan;
}

namespace {

bool is_naive_affordable(const topology::Topology& topology, const plan::Workload& workload,
                         Bytes bucket_size) {
  const std::uint64_t transfers = schedule_family("ring").graph_size(topology).transfers *
                                  group_tensors(workload, bucket_size).size();
  return topology.rank_count() < kVeryManyRanks || transfers <= kMostTransfersOfStep;
}

void add_baselines(plan::Plan& plan, Search& search, const topology::Topology& topology,
                   const plan::Workload& workload, plan::CostModel& cost_model,
                   const PlannerOptions& options) {
  auto& baselines = plan.prediction.baselines;
  const plan::BatchPlan batch = same_everywhere(plan.batch);
  const auto family = [](const char* name) {
    return [name](const Candidate& c) { return !c.strongest.is_lossy() && c.family == name; };
  };
  // Of the same search, which has mostly simulated it already, where the options leave it in.
  const auto add = [&](const char* name, Search::Draft draft) {
    if (search.is_affordable(draft) && !is_stopped(options)) {
      if (search.score_below(draft.scored, CandidateSet::kNoLimit)) {  // else it was stopped
        baselines[name] = draft.scored.estimate.step_time;
      }
    }
  };
  if (auto naive = search.draft({kNaive, kUsualBucket, family("ring")}, batch)) {
    add(kNaive, *std::move(naive));
  } else if (is_naive_affordable(topology, workload, kUsualBucket) && !is_stopped(options)) {
    PlannerOptions without_planner = options;
    without_planner.bucket_size.reset();
    baselines[kNaive] =
        naive_plan(topology, workload, cost_model, without_planner, batch).prediction.step_time;
  }
  std::vector<std::pair<const char*, const char*>> kinds = {{kDoubleTree, "double-binary-tree"}};
  // With very many ranks the servers' links have so many flows at once that this baseline alone
  // would take longer to simulate than the search.
  if (topology.rank_count() < kVeryManyRanks) {
    kinds.emplace_back(kParameterServer, "parameter-server");
  }
  for (const auto& [name, of] : kinds) {
    if (is_stopped(options)) {
      return;
    }
    if (auto draft = search.draft({name, kUsualBucket, family(of)}, batch)) {
      add(name, *std::move(draft));
    }
  }
}

/// Whether large buckets are worth dividing finely for a program that reduces others, too: there
/// are few of them, and the step is far from what it takes at least.
bool has_large_buckets(const plan::Plan& plan, const PlannerOptions& options) {
  const auto large = std::ranges::count_if(
      plan.buckets, [](const plan::Bucket& bucket) { return bucket.elements >= kLargeBucket; });
  return large > 0 && large <= kMostLargeBuckets &&
         plan.prediction.gap > std::max(kSameTime, options.enough_gap.value_or(0));
}

/// Buckets more finely, or held to rates, as the options say. A plan that must not lose by it has
/// only its large ones divided, without rates.
void divide_buckets(plan::Plan& plan, const plan::Workload& workload,
                    const topology::Topology& topology, plan::CostModel& cost_model,
                    const PlannerOptions& options) {
  const bool may_be_rated = may_have_rates(options.route_rates, topology);
  if (options.divides_finely || has_large_buckets(plan, options)) {
    const bool has_budget = !options.codec || options.holds_codec_to_budget;
    OfAnyFamily of_any_family = has_budget ? OfAnyFamily::kWithinBudget : OfAnyFamily::kAll;
    if (options.schedule) {
      of_any_family = OfAnyFamily::kNone;
    }
    std::function<bool()> stop = options.stop;
    if (options.effort == SearchEffort::kQuick) {
      QuickLimit limit(topology.rank_count(), WorkShare::kDivision);
      limit.found_gap(plan.prediction.gap);
      stop = [limit, told = options.stop] { return limit.is_reached() || (told && told()); };
    }
    divide_finely(plan, workload, topology, cost_model,
                  {.of_any_family = of_any_family,
                   .error_budget = options.error_budget,
                   .may_lighten = !options.codec && !options.schedule,
                   .may_have_rates = may_be_rated && options.divides_finely,
                   .least_elements = options.divides_finely ? 0 : kLargeBucket,
                   .stop = stop});
  }
  if (may_be_rated) {
    hold_to_rates(plan, workload, topology, cost_model,
                  options.divides_finely ? HeldSchedules::kAll : HeldSchedules::kOfManySenders);
  }
}

/// What a search that ended early found, or what runs without a planner where that is faster: its
/// buckets of FP32 need not be among those that such a search tries.
Search::Scored best_or_usual(const JointResult& found, Search& search,
                             const PlannerOptions& options) {
  Search::Scored best = found.best;
  if (!found.was_quick || options.codec.has_value() || options.bucket_size.has_value()) {
    return best;
  }
  for (const char* const name : {"ring", "double-binary-tree"}) {
    const CandidateFilter filter = [name](const Candidate& candidate) {
      return is_fp32(candidate) && candidate.family == name;
    };
    auto draft = search.draft({name, kUsualBucket, filter}, best.plan.batch);
    if (draft && search.is_affordable(*draft) &&
        search.score_below(draft->scored, best.estimate.step_time)) {
      best = std::move(draft->scored);
    }
  }
  return best;
}

}  // namespace

plan::Plan finished_plan(const JointResult& found, Search& search,
                         const topology::Topology& topology, const plan::Workload& workload,
                         plan::CostModel& cost_model, const PlannerOptions& options) {
  const Search::Scored best = best_or_usual(found, search, options);
  plan::Plan plan = best.plan;
  const LowerBound bound =
      lower_bound(topology, workload, plan.batch, search.candidates().allowed_codecs(),
                  search.protected_by_tensor());
  set_prediction(plan, best.estimate, bound);
  search.materialise(plan);
  divide_buckets(plan, workload, topology, cost_model, options);
  take_out_preference(plan, cost_model);
  std::map<std::string, Duration> best_of = found.best_of;
  count_in(plan, plan.prediction.step_time, best_of);
  const std::vector<plan::Codec>& allowed = search.candidates().allowed_codecs();
  if (std::ranges::none_of(
          allowed, [](const plan::Codec& codec) { return codec.kind == plan::CodecKind::kFp16; })) {
    best_of.erase("best fp16");
  }
  const bool compare = options.compare_baselines && !found.was_stopped;
  if (compare) {
    add_baselines(plan, search, topology, workload, cost_model, options);
    for (const auto& [name, time] : best_of) {
      if (name != "best") {
        plan.prediction.baselines[name] = time;
      }
    }
  }
  const Duration step = plan.prediction.step_time;
  std::vector<std::string> notes = found.notes;
  const bool compresses = std::any_of(plan.buckets.begin(), plan.buckets.end(),
                                      [](const plan::Bucket& b) { return b.codec.is_lossy(); });
  const auto fp32 = best_of.find("best fp32");
  const auto fp16 = best_of.find("best fp16");
  if (compresses && fp32 != best_of.end()) {
    notes.push_back(
        fmt::format("compression {}: without it the best step found takes {} ({} over this plan)",
                    fp32->second >= scaled(step, 1 + kSameTime) ? "pays off" : "gains little here",
                    to_string(fp32->second), share_text(fp32->second, step)));
  }
  if (compresses && fp16 != best_of.end() && fp16->second > step) {
    notes.push_back(
        fmt::format("with FP16 at most, the best step found takes {} ({} over this plan)",
                    to_string(fp16->second), share_text(fp16->second, step)));
  }
  if (!found.uniform.empty()) {
    notes.push_back(uniform_note(compresses, found.uniform, step));
  }
  if (options.codec.has_value() && !options.codec->survives_many_hops()) {
    notes.push_back(lighter_note(*options.codec, plan.buckets));
  }
  const bool adds_in_network = std::ranges::any_of(plan.buckets, [&](const plan::Bucket& bucket) {
    return !plan.schedules[bucket.schedule].groups().empty();
  });
  if (adds_in_network) {
    notes.emplace_back(
        "switches add and copy in this plan; training sends such transfers one by one, which takes "
        "longer than predicted: --schedule hierarchical plans without");
  }
  if (found.lightened > 0) {
    notes.push_back(fmt::format(
        "{} compressed less than possible: it costs no time, as compute or other buckets hide it",
        found.lightened == 1 ? "1 bucket is" : fmt::format("{} buckets are", found.lightened)));
  }
  if (compare) {
    const auto naive = plan.prediction.baselines.find(kNaive);
    notes.push_back(
        naive == plan.prediction.baselines.end()
            ? "the naive baseline is left out: it takes too long to simulate"
            : fmt::format(
                  "the naive baseline (FP32 ring, 25 MiB buckets){} takes {} ({} over this plan)",
                  is_same_everywhere(plan.batch)
                      ? ""
                      : ", with " + local_batch_text(same_everywhere(plan.batch)) + ",",
                  to_string(naive->second), share_text(naive->second, step)));
  }
  if (found.was_stopped) {
    notes.emplace_back("the search was stopped early: with more time it may find a faster plan");
  }
  if (found.was_quick) {
    notes.emplace_back(
        "the search ended early, as little was left to gain for the wait: --search thorough looks "
        "further");
  }
  if (found.is_near_bound) {
    notes.push_back(
        fmt::format("the search ended at the first plan within {:g} % of the lower bound",
                    100 * options.enough_gap.value()));
  }
  plan.notes = std::move(notes);
  set_compression_warmup(
      plan,
      options.compression_warmup.value_or(
          options.codec.has_value() ? 0 : usual_compression_warmup(plan, workload)),
      workload, cost_model);
  verify_or_throw(plan, topology, workload);
  predict_exactly(plan, workload, cost_model, options);
  count_in(plan, plan.prediction.step_time, plan.prediction.baselines);
  return plan;
}

}  // namespace rackrail::planner
