#include "planner/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/verifier.hpp"
#include "planner/batch.hpp"
#include "planner/batch/batch_space.hpp"
#include "planner/batch/decide_batch.hpp"
#include "planner/bound.hpp"
#include "planner/buckets.hpp"
#include "planner/candidates.hpp"

namespace rackrail::planner {

namespace {

constexpr Bytes kUsualBucket = Bytes(25 << 20);
// Work of the search is limited by simulated transfers, not by a clock: the same input must give
// the same plan on a fast and on a slow machine.
constexpr std::int64_t kTransferBudget = 4'000'000;
// A lighter codec is preferred when it costs less than this share of the step.
constexpr double kWorthwhile = 0.001;

/// A way to plan the whole step: bucket size and which candidates are considered.
struct Policy {
  std::string name;
  Bytes bucket_size;
  CandidateFilter filter;
};

class Search {
 public:
  Search(const topology::Topology& topology, const plan::Workload& workload,
         plan::CostModel& cost_model, const PlannerOptions& options)
      : topology_(topology),
        workload_(workload),
        cost_model_(cost_model),
        options_(options),
        candidates_(topology, cost_model, options) {}

  struct Scored {
    plan::Plan plan;
    plan::StepEstimate estimate;
    std::vector<std::size_t> chosen;  ///< candidate per bucket
  };

  const CandidateSet& candidates() const { return candidates_; }

  std::optional<Scored> evaluate(const Policy& policy, const plan::BatchPlan& batch) {
    std::vector<TensorGroup> groups = group_tensors(workload_, policy.bucket_size, false);
    std::vector<Choice> choices = choose(groups, policy.filter);
    const bool needs_protection = std::any_of(choices.begin(), choices.end(), [&](const Choice& c) {
      return candidates_.all()[c.candidate].hurts_protected;
    });
    if (needs_protection) {
      groups = group_tensors(workload_, policy.bucket_size, true);
      choices = choose(groups, policy.filter);
    }
    if (choices.size() != groups.size()) {
      return std::nullopt;
    }
    Scored scored;
    scored.plan = assemble(groups, choices, batch);
    for (const Choice& choice : choices) {
      scored.chosen.push_back(choice.candidate);
    }
    score(scored);
    return scored;
  }

  /// Lighter codecs where the step does not become longer by it: overlap hides the extra bytes.
  void lighten(Scored& best) {
    const Scored before = best;
    for (std::size_t b = 0; b < best.plan.buckets.size() && budget_left(best); ++b) {
      const Candidate& now = candidates_.all()[best.chosen[b]];
      if (!now.strongest.is_lossy()) {
        continue;
      }
      for (const plan::CodecKind kind : {plan::CodecKind::kNone, plan::CodecKind::kFp16}) {
        if (kind >= now.strongest.kind) {
          break;
        }
        const auto lighter = candidates_.cheapest(
            best.plan.buckets[b].elements,
            [&](const Candidate& c) { return c.strongest.kind == kind && !c.only_protected; });
        if (!lighter.has_value()) {
          continue;
        }
        Scored trial = best;
        trial.chosen[b] = lighter->candidate;
        set_schedule(trial.plan, b, *lighter);
        score(trial);
        if (trial.estimate.step_time <= scaled(before.estimate.step_time, 1 + kWorthwhile)) {
          best = std::move(trial);
          ++lightened_;
          break;
        }
      }
    }
  }

  int lightened() const { return lightened_; }

 private:
  std::vector<Choice> choose(const std::vector<TensorGroup>& groups,
                             const CandidateFilter& filter) {
    std::vector<Choice> choices;
    const bool mixed = std::any_of(groups.begin(), groups.end(),
                                   [](const TensorGroup& g) { return g.is_protected; });
    for (const TensorGroup& group : groups) {
      auto choice = candidates_.cheapest(group.elements, [&](const Candidate& c) {
        return filter(c) && !c.only_protected &&
               !(mixed && group.is_protected && c.hurts_protected);
      });
      if (!choice.has_value() && group.is_protected) {
        choice = candidates_.cheapest(group.elements,
                                      [](const Candidate& c) { return !c.hurts_protected; });
      }
      if (choice.has_value()) {
        choices.push_back(*choice);
      }
    }
    return choices;
  }

  plan::Plan assemble(const std::vector<TensorGroup>& groups, const std::vector<Choice>& choices,
                      const plan::BatchPlan& batch) {
    plan::Plan plan;
    plan.name = fmt::format("{} on {}", workload_.name, topology_.name());
    plan.cluster_name = topology_.name();
    plan.cluster_digest = topology_.digest();
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      plan.rank_names.push_back(topology_.node(topology_.node_of(Rank(r))).name);
    }
    plan.workload_name = workload_.name;
    plan.workload_digest = workload_.digest();
    plan.batch = batch;
    plan.error_budget = options_.error_budget;
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

  void set_schedule(plan::Plan& plan, std::size_t bucket, const Choice& choice) {
    const Candidate& candidate = candidates_.all()[choice.candidate];
    plan::Bucket& target = plan.buckets[bucket];
    target.slice_elements = choice.slice_elements;
    target.codec = candidate.strongest;
    target.codec_tiers = candidate.codec_tiers;
    target.schedule = static_cast<std::uint32_t>(choice.candidate);
  }

 public:
  /// While searching, Bucket::schedule is the candidate's number; a plan that leaves the search has
  /// only the schedules that it uses, each once.
  void materialise(plan::Plan& plan) const {
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

  void score(Scored& scored) {
    plan::Plan whole = scored.plan;
    materialise(whole);
    spent_ += transfers_of(scored);
    scored.estimate = cost_model_.step(whole, workload_);
  }

  std::int64_t transfers_of(const Scored& scored) const {
    std::int64_t transfers = 0;
    for (const std::size_t candidate : scored.chosen) {
      transfers += static_cast<std::int64_t>(candidates_.all()[candidate].graph.transfers().size());
    }
    return transfers;
  }

  bool budget_left(const Scored& scored) const {
    return spent_ + transfers_of(scored) <= kTransferBudget;
  }

 private:
  const topology::Topology& topology_;
  const plan::Workload& workload_;
  plan::CostModel& cost_model_;
  const PlannerOptions& options_;
  CandidateSet candidates_;
  std::int64_t spent_ = 0;
  int lightened_ = 0;
};

std::vector<Bytes> bucket_sizes(const plan::Workload& workload, const topology::Topology& topology,
                                const PlannerOptions& options) {
  if (options.bucket_size.has_value()) {
    return {*options.bucket_size};
  }
  constexpr std::size_t kManyRanks = 32;
  const bool many = topology.rank_count() >= kManyRanks;
  const std::vector<std::int64_t> mebibytes =
      many ? std::vector<std::int64_t>{100, 25}
           : std::vector<std::int64_t>{100, 50, 25, 16, 8, 4, 2, 1};
  std::vector<Bytes> sizes = {workload.gradient_bytes()};
  for (const std::int64_t size : mebibytes) {
    if (Bytes(size << 20) < workload.gradient_bytes()) {
      sizes.emplace_back(size << 20);
    }
  }
  return sizes;
}

bool any_candidate(const Candidate&) { return true; }
bool is_fp32(const Candidate& c) { return !c.strongest.is_lossy(); }
bool is_at_most_fp16(const Candidate& c) { return !c.hurts_protected; }

std::string share_text(Duration time, Duration reference) {
  return fmt::format("{:+.1f} %", (time / reference - 1) * 100);
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

void require_ranks(const topology::Topology& topology) {
  if (topology.rank_count() < 2) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   fmt::format("{} rank(s)", topology.rank_count()),
                                   "at least two ranks to plan for"});
  }
}

/// FP32 over a ring in buckets of one size, whatever the options say about schedules and codecs.
plan::Plan naive_plan(const topology::Topology& topology, const plan::Workload& workload,
                      plan::CostModel& cost_model, PlannerOptions options,
                      const plan::BatchPlan& batch) {
  options.codec = plan::Codec{};
  options.schedule = "ring";
  Search search(topology, workload, cost_model, options);
  const auto scored =
      search.evaluate({"naive", options.bucket_size.value_or(kUsualBucket), any_candidate}, batch);
  if (!scored.has_value()) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   "no ring over its ranks", "a connected cluster"});
  }
  plan::Plan plan = scored->plan;
  plan.name = "naive: " + plan.name;
  set_prediction(plan, scored->estimate,
                 lower_bound(topology, workload, plan.batch, {plan::Codec{}}));
  plan.notes = {"FP32 ring over the ranks, buckets of 25 MiB: what runs without a planner"};
  search.materialise(plan);
  verify_or_throw(plan, topology, workload);
  return plan;
}

/// The same number of samples on every rank, as a program without a planner has it, whether or not
/// they fit into the smallest memory.
plan::BatchPlan same_everywhere(const plan::BatchPlan& batch) {
  plan::BatchPlan same = batch;
  const auto ranks = static_cast<std::int64_t>(batch.local_batch.size());
  const std::int64_t each =
      std::max<std::int64_t>(1, batch.global_batch() / batch.accumulation / ranks);
  same.local_batch.assign(batch.local_batch.size(), each);
  return same;
}

void add_baselines(plan::Plan& plan, Search& search, const topology::Topology& topology,
                   const plan::Workload& workload, plan::CostModel& cost_model,
                   const PlannerOptions& options) {
  auto& baselines = plan.prediction.baselines;
  const plan::BatchPlan batch = same_everywhere(plan.batch);
  baselines["naive ring fp32 25 MiB"] =
      naive_plan(topology, workload, cost_model, options, batch).prediction.step_time;
  const auto family = [](const char* name) {
    return [name](const Candidate& c) { return !c.strongest.is_lossy() && c.family == name; };
  };
  const std::pair<const char*, CandidateFilter> kinds[] = {
      {"double tree fp32", family("double-binary-tree")},
      {"parameter server fp32", family("parameter-server")}};
  for (const auto& [name, filter] : kinds) {
    if (const auto scored = search.evaluate({name, kUsualBucket, filter}, batch)) {
      baselines[name] = scored->estimate.step_time;
    }
  }
}

}  // namespace

plan::Plan make_plan(const topology::Topology& topology, const plan::Workload& workload,
                     plan::CostModel& cost_model, const PlannerOptions& options) {
  require_ranks(topology);
  topology.require_connected();
  const auto progress = [&](double share, const std::string& what) {
    if (options.progress) {
      options.progress(share, what);
    }
  };
  const BatchSpace space(topology, workload, options);
  progress(0, "schedules");
  Search search(topology, workload, cost_model, options);

  // Every bucket size with every limit on codecs: compression that hides behind compute, or that
  // makes small buckets slower, loses against its own uncompressed form here.
  std::optional<Search::Scored> best;
  std::map<std::string, Duration> best_of;
  const std::vector<Bytes> sizes = bucket_sizes(workload, topology, options);
  const std::pair<const char*, bool (*)(const Candidate&)> limits[] = {
      {"best fp32", is_fp32}, {"best fp16", is_at_most_fp16}, {"best", any_candidate}};
  std::size_t done = 0;
  const auto try_all = [&](const plan::BatchPlan& batch) {
    for (const Bytes size : sizes) {
      for (const auto& [name, filter] : limits) {
        progress(
            static_cast<double>(done++) / static_cast<double>(sizes.size() * std::size(limits) + 1),
            fmt::format("buckets of {}", to_string(size)));
        auto scored = search.evaluate({name, size, filter}, batch);
        if (!scored.has_value()) {
          continue;
        }
        const Duration time = scored->estimate.step_time;
        const auto [it, added] = best_of.emplace(name, time);
        if (!added) {
          it->second = std::min(it->second, time);
        }
        if (!best.has_value() || time < scaled(best->estimate.step_time, 1 - kWorthwhile)) {
          best = std::move(scored);
        }
      }
    }
  };
  const plan::BatchPlan first_batch = space.fixed();
  try_all(first_batch);
  if (!best.has_value()) {
    throw ConfigError(ErrorContext{"<command line>", "options", "no plan that they allow",
                                   "options that leave a schedule for every bucket"});
  }
  // Compute times change with the batch, routes and codecs much less, so batches are compared with
  // the plan found above.
  BatchDecision decision =
      decide_batch(workload, space, options.batch_policy, [&](const plan::BatchPlan& batch) {
        Search::Scored trial = *best;
        trial.plan.batch = batch;
        search.score(trial);
        return trial.estimate.step_time;
      });
  std::vector<std::string> notes = std::move(decision.notes);
  if (decision.batch.local_batch != first_batch.local_batch ||
      decision.batch.accumulation != first_batch.accumulation) {
    best.reset();
    best_of.clear();
    done = 0;
    try_all(decision.batch);
  }
  progress(0.95, "lighter codecs");
  search.lighten(*best);
  progress(1, "checking");

  plan::Plan plan = best->plan;
  // Lightening can lead below what the searches among lighter codecs found.
  const auto includes_this_plan = [&](const char* name, plan::CodecKind heaviest) {
    const auto it = best_of.find(name);
    if (it != best_of.end() &&
        std::all_of(plan.buckets.begin(), plan.buckets.end(),
                    [&](const plan::Bucket& b) { return b.codec.kind <= heaviest; })) {
      it->second = std::min(it->second, best->estimate.step_time);
    }
  };
  includes_this_plan("best fp32", plan::CodecKind::kNone);
  includes_this_plan("best fp16", plan::CodecKind::kFp16);
  const LowerBound bound =
      lower_bound(topology, workload, plan.batch, search.candidates().allowed_codecs());
  set_prediction(plan, best->estimate, bound);
  if (options.compare_baselines) {
    add_baselines(plan, search, topology, workload, cost_model, options);
    for (const auto& [name, time] : best_of) {
      if (name != "best") {
        plan.prediction.baselines[name] = time;
      }
    }
  }
  const Duration step = best->estimate.step_time;
  const bool compresses = std::any_of(plan.buckets.begin(), plan.buckets.end(),
                                      [](const plan::Bucket& b) { return b.codec.is_lossy(); });
  const auto fp32 = best_of.find("best fp32");
  const auto fp16 = best_of.find("best fp16");
  if (compresses && fp32 != best_of.end()) {
    notes.push_back(fmt::format("compression is worth it: the best plan in FP32 takes {} ({})",
                                to_string(fp32->second), share_text(fp32->second, step)));
  }
  if (compresses && fp16 != best_of.end() && fp16->second > step) {
    notes.push_back(fmt::format("against the best plan with at most FP16: {} ({})",
                                to_string(fp16->second), share_text(fp16->second, step)));
  }
  if (!compresses && best_of.contains("best") && search.candidates().allowed_codecs().size() > 1) {
    notes.push_back(fmt::format(
        "no compression: the best plan with a codec takes {} ({}), because the network is fast "
        "enough or hidden behind compute",
        to_string(best_of.at("best")), share_text(best_of.at("best"), step)));
  }
  if (search.lightened() > 0) {
    notes.push_back(
        fmt::format("{} bucket(s) use a lighter codec than the fastest, because the "
                    "difference hides behind compute",
                    search.lightened()));
  }
  if (options.compare_baselines) {
    const Duration naive = plan.prediction.baselines.at("naive ring fp32 25 MiB");
    notes.push_back(
        fmt::format("the naive ring takes {} ({})", to_string(naive), share_text(naive, step)));
  }
  plan.notes = std::move(notes);
  search.materialise(plan);
  verify_or_throw(plan, topology, workload);
  return plan;
}

plan::Plan make_naive_plan(const topology::Topology& topology, const plan::Workload& workload,
                           plan::CostModel& cost_model, const PlannerOptions& options) {
  require_ranks(topology);
  plan::BatchPlan batch = same_everywhere(BatchSpace(topology, workload, options).fixed());
  const std::int64_t most = local_batches(topology, workload, options).back();
  for (std::int64_t& local : batch.local_batch) {
    local = std::min(local, most);
  }
  return naive_plan(topology, workload, cost_model, options, batch);
}

}  // namespace rackrail::planner
