#include "cli/batch_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "planner/batch/batch_space.hpp"
#include "planner/batch/learning_rate.hpp"

namespace rackrail::cli {

namespace {

/// Steps of which some rank's figures have not come are not waited for any longer than this many.
constexpr std::size_t kMostIncomplete = 16;

/// Of a rank in a step: what says more is no worker of ours.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;

bool same_batch(const plan::BatchPlan& a, const plan::BatchPlan& b) {
  return a.local_batch == b.local_batch && a.accumulation == b.accumulation;
}

}  // namespace

BatchWatch::BatchWatch(Options options, plan::Plan plan, plan::Workload workload,
                       SurvivalPlans& plans, std::function<void(const std::string&)> say)
    : options_(options),
      first_batch_(plan.batch),
      workload_(std::move(workload)),
      plans_(plans),
      say_(std::move(say)),
      plan_(std::move(plan)),
      state_{first_batch_} {
  for (std::size_t rank = 0; rank < plan_.rank_count(); ++rank) {
    ranks_.emplace_back(rank);
  }
}

std::optional<runtime::JobOptions::BetterPlan> BatchWatch::measured(
    const runtime::StepMeasurement& step) {
  if (!std::ranges::binary_search(ranks_, step.rank) || step.samples > kMostSamples) {
    return std::nullopt;
  }
  auto& parts = incomplete_[step.step];
  parts.insert_or_assign(step.rank, step);
  if (parts.size() < ranks_.size()) {
    if (incomplete_.size() > kMostIncomplete) {
      incomplete_.erase(incomplete_.begin());
    }
    return std::nullopt;
  }
  const bool is_known = count(parts);
  incomplete_.erase(incomplete_.begin(), incomplete_.upper_bound(step.step));
  if (!is_known || pending_ || step.step < decided_ + options_.every ||
      estimator_.steps() < options_.every) {
    return std::nullopt;
  }
  decided_ = step.step;
  return decide_after(step.step);
}

/// Whether it was a step of the batch in use.
bool BatchWatch::count(const std::map<Rank, runtime::StepMeasurement>& step) {
  std::int64_t samples = 0;
  double weighted = 0;
  bool has_norms = true;
  for (const auto& [rank, part] : step) {
    samples += part.samples;
    has_norms = has_norms && part.norms.has_value();
    weighted += part.norms ? part.norms->weighted_squared : 0;
  }
  const runtime::StepMeasurement& one = step.begin()->second;
  note_batch(one.step, samples);
  if (has_norms && step.size() > 1) {
    estimator_.add(weighted, one.norms->mean_squared, step.size(), samples);
  }
  return samples == plan_.batch.global_batch();
}

void BatchWatch::note_batch(std::uint32_t step, std::int64_t samples) {
  if (batches_.empty() || batches_.back().second != samples) {
    batches_.emplace_back(step, samples);
  }
  if (!pending_) {
    return;
  }
  if (samples != pending_->batch.global_batch()) {
    if (has_begun_) {
      entries_.back().outcome = "new plan, which was not adopted";
      pending_.reset();
    }
    return;
  }
  plan_ = *std::exchange(pending_, std::nullopt);
  plans_.set_batch(plan_.batch, ranks_);
  state_ = {plan_.batch, 0, 0};
  entries_.back().new_from_step = step;
}

planner::Redecision BatchWatch::decide(double noise_scale) const {
  plan::Workload workload = workload_;
  workload.noise_scale = noise_scale;
  workload.noise_curve.clear();
  planner::PlannerOptions options;
  options.learning_rate_rule = planner::rule_in(first_batch_);
  options.max_global_batch = options_.max_global_batch;
  const topology::Topology cluster = plans_.cluster_of(ranks_);
  const planner::BatchSpace space(cluster, workload, options);
  const auto step_time = [this](const plan::BatchPlan& batch) {
    plan::Plan plan = plan_;
    plan.batch = same_batch(batch, plan_.batch) ? batch : plans_.fitted(batch, ranks_);
    return plans_.step_time_of(std::move(plan), ranks_);
  };
  planner::Redecision decision =
      planner::redecide(state_, workload, space, step_time, options_.rule);
  if (decision.changes) {
    plan::BatchPlan& batch = decision.next.batch;
    batch = plans_.fitted(std::move(batch), ranks_);
    batch.warmup_steps = first_batch_.warmup_steps;
    if (first_batch_.learning_rate == 0) {  // by the training's own
      batch.learning_rate = 0;
      batch.learning_rate_rule.clear();
    }
  }
  return decision;
}

/// The routes in use, or others where a step is shorter with them.
plan::Plan BatchWatch::plan_with(const plan::BatchPlan& batch) const {
  plan::Plan kept = plan_;
  kept.batch = batch;
  plan::Plan other = plans_.plan_for(ranks_, batch);
  return plans_.step_time_of(other, ranks_) < plans_.step_time_of(kept, ranks_) ? other : kept;
}

std::optional<runtime::JobOptions::BetterPlan> BatchWatch::decide_after(std::uint32_t step) {
  const std::optional<double> noise = estimator_.noise_scale();
  if (!noise) {
    return std::nullopt;
  }
  Entry& entry = entries_.emplace_back(Entry{.step = step,
                                             .noise_scale = *noise,
                                             .batch = plan_.batch.global_batch(),
                                             .decision = {},
                                             .outcome = "batch kept"});
  try {
    entry.decision = decide(*noise);
    const planner::Redecision& decision = entry.decision;
    if (!decision.changes) {
      state_ = decision.next;
      return std::nullopt;
    }
    const std::string text = fmt::format("after step {}: {}", step, decision.reason);
    state_ = {plan_.batch, 0, 0};
    if (options_.action == Action::kReport) {
      entry.outcome = "reported";
      say_(text);
      return std::nullopt;
    }
    pending_ = plan_with(decision.next.batch);
    has_begun_ = false;
    entry.outcome = "new plan";
    say_(fmt::format("{}; learning rate {}", text, pending_->batch.learning_rate_rule));
    return runtime::JobOptions::BetterPlan{text, *pending_};
  } catch (const std::exception& error) {
    entry.outcome = fmt::format("no plan: {}", error.what());
    pending_.reset();
    say_(fmt::format("after step {}: {}", step, entry.outcome));
    return std::nullopt;
  }
}

void BatchWatch::began(const runtime::EpochBegin& begin) {
  ranks_ = begin.seats;
  has_begun_ = true;
  incomplete_.clear();
  decided_ = std::min(decided_, begin.step);
  state_.larger = 0;
  state_.smaller = 0;
}

void BatchWatch::set_plan(plan::Plan plan) {
  pending_.reset();
  plan_ = std::move(plan);
  state_ = {plan_.batch, 0, 0};
}

nlohmann::json BatchWatch::decisions_json() const {
  nlohmann::json result = nlohmann::json::array();
  for (const Entry& entry : entries_) {
    nlohmann::json one = {{"step", entry.step},
                          {"noise_scale", entry.noise_scale},
                          {"batch", entry.batch},
                          {"gain", entry.decision.gain},
                          {"text", entry.decision.reason},
                          {"outcome", entry.outcome},
                          {"new_batch", nullptr},
                          {"new_learning_rate", nullptr},
                          {"new_batch_from_step", nullptr}};
    if (entry.decision.changes) {
      one["new_batch"] = entry.decision.next.batch.global_batch();
      one["new_learning_rate"] = entry.decision.next.batch.learning_rate;
    }
    if (entry.new_from_step) {
      one["new_batch_from_step"] = *entry.new_from_step;
    }
    result.push_back(std::move(one));
  }
  return result;
}

nlohmann::json BatchWatch::batches_json() const {
  nlohmann::json result = nlohmann::json::array();
  for (const auto& [step, samples] : batches_) {
    result.push_back({step, samples});
  }
  return result;
}

}  // namespace rackrail::cli
