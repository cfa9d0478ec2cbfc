#include "cli/continuation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/parse_units.hpp"

namespace rackrail::cli {

namespace {

constexpr Duration kPlanningTime = 1_s;
constexpr const char* kServers = "parameter-server";  // family of schedules

/// Nobody was lost, and nobody came.
bool is_mere_change(const runtime::EpochBegin& begin) {
  return begin.is_change && begin.lost.empty() && begin.taken.empty();
}

std::vector<std::string> names_of(const std::vector<Rank>& ranks, const plan::Plan& first_plan) {
  std::vector<std::string> names;
  for (const Rank rank : ranks) {
    names.push_back(first_plan.rank_names.at(rank.index()));
  }
  return names;
}

/// "rank 2 (host1) was lost: … (noticed 0.1 s after …)": what happened and how the job went on.
std::string describe(const runtime::EpochBegin& begin, const plan::Plan& first_plan) {
  if (is_mere_change(begin)) {
    return fmt::format("{} workers go on with another plan from step {} after {}",
                       begin.seats.size(), begin.step, to_string(begin.pause));
  }
  std::vector<Rank> gone;
  std::ranges::copy_if(begin.lost, std::back_inserter(gone),
                       [&](Rank rank) { return std::ranges::count(begin.taken, rank) == 0; });
  return fmt::format(
      "{}{}; {} workers go on{}{} from step {} after {}", begin.reason,
      begin.lost.empty()
          ? ""
          : fmt::format("; noticed at most {} after it was last heard", to_string(begin.silence)),
      begin.seats.size(),
      gone.empty() ? "" : fmt::format(" without {}", fmt::join(names_of(gone, first_plan), ", ")),
      begin.taken.empty() ? ""
                          : fmt::format(" with a new worker for {}",
                                        fmt::join(names_of(begin.taken, first_plan), ", ")),
      begin.step, to_string(begin.pause));
}

nlohmann::json losses_json(const runtime::JobResult& job, const plan::Plan& first_plan,
                           const std::map<std::vector<Rank>, PlanChanges>& changes) {
  nlohmann::json losses = nlohmann::json::array();
  for (const runtime::EpochBegin& begin : job.epochs) {
    if (is_mere_change(begin)) {
      continue;
    }
    const auto known = changes.find(begin.seats);
    const std::chrono::duration<double> noticed = begin.noticed.time_since_epoch();
    losses.push_back({{"epoch", begin.epoch},
                      {"reason", begin.reason},
                      {"lost", names_of(begin.lost, first_plan)},
                      {"new_workers_for", names_of(begin.taken, first_plan)},
                      {"workers", begin.seats.size()},
                      {"changes", known != changes.end() ? known->second.json() : nlohmann::json()},
                      {"step", begin.step},
                      {"noticed_at_unix_s", noticed.count()},
                      {"noticed_within_s", begin.silence.seconds()},
                      {"resumed_after_s", begin.pause.seconds()}});
  }
  return losses;
}

nlohmann::json requests_json(const std::vector<SurvivalPlans::Weighed>& requests) {
  nlohmann::json result = nlohmann::json::array();
  for (const SurvivalPlans::Weighed& one : requests) {
    result.push_back({{"outcome", one.plan ? "new plan" : one.text()},
                      {"kept_step_time_s", one.kept.seconds()},
                      {"new_step_time_s", one.better.seconds()},
                      {"changes", one.changes ? one.changes->json() : nlohmann::json()}});
  }
  return result;
}

}  // namespace

Continuation::Continuation(Session& session, const ContinuationOptions& options,
                           const plan::Plan& plan, const topology::Topology& cluster,
                           plan::Workload workload)
    : session_(session),
      options_(options),
      plan_(plan),
      plans_(plan, cluster, workload, kPlanningTime),
      plan_now_(plan) {
  for (std::size_t rank = 0; rank < plan.rank_count(); ++rank) {
    ranks_now_.emplace_back(rank);
  }
  if (options.has_servers) {
    plans_.keep_schedule(kServers);
  }
  if (options.is_on_gpus) {
    plans_.leave_out_rates();
  }
  const auto say = [&session](const std::string& text) { session.note("note: " + text); };
  if (options.on_slow) {
    watch_.emplace(
        *options.on_slow, plan, cluster, plans_,
        runtime::DetectorOptions{.rate_scale = options.rate_scale,
                                 .profile = [this](Rank rank) { return plans_.profile(rank); }},
        say);
  }
  if (options.on_noise) {
    batch_watch_.emplace(*options.on_noise, plan, std::move(workload), plans_, say);
  }
}

void Continuation::attach(runtime::JobOptions& job) {
  job.on_epoch = [this](const runtime::EpochBegin& begin) {
    session_.note("note: " + describe(begin, plan_));
    const auto changes = changes_after_losses_.find(begin.seats);
    if (!is_mere_change(begin) && changes != changes_after_losses_.end()) {
      session_.note("note: " + changes->second.text());
    }
    ranks_now_ = begin.seats;
    if (watch_) {
      watch_->began(begin);
    }
    if (batch_watch_) {
      batch_watch_->began(begin);
    }
  };
  if (watch_) {
    job.on_measured = [this](const runtime::StepMeasurement& step) { return measured(step); };
  }
  job.on_replan = [this] { return offer(); };
  job.batch_may_change =
      options_.on_noise && options_.on_noise->action == BatchWatch::Action::kRebatch;
  if (options_.survives_losses) {
    job.plan_for = [this](const std::vector<Rank>& left) { return plan_for(left); };
    job.replacement_deadline = options_.replacement_deadline;
  }
}

std::optional<runtime::JobOptions::BetterPlan> Continuation::measured(
    const runtime::StepMeasurement& step) {
  auto better = better_after(step);
  if (better) {
    plan_now_ = better->plan;
  }
  return better;
}

/// One plan at a time: what is measured until a new batch is taken up says nothing of what comes.
std::optional<runtime::JobOptions::BetterPlan> Continuation::better_after(
    const runtime::StepMeasurement& step) {
  if (!batch_watch_) {
    return watch_->measured(step);
  }
  if (!batch_watch_->is_changing()) {
    if (auto better = watch_->measured(step)) {
      batch_watch_->set_plan(better->plan);
      return better;
    }
    plans_.set_condition(watch_->rates(), watch_->factors());
  }
  auto better = batch_watch_->measured(step);
  if (better) {
    watch_->set_plan(better->plan);
  }
  return better;
}

/// For the network and the ranks as they are as far as that was found, or as the cluster has them.
runtime::JobOptions::Offer Continuation::offer() {
  if (batch_watch_ && batch_watch_->is_changing()) {
    return {.reason = "a change of the batch is under way"};
  }
  if (watch_) {
    plans_.set_condition(watch_->rates(), watch_->factors());
  }
  const SurvivalPlans::Weighed& weighed =
      requests_.emplace_back(plans_.weigh(plan_now_, ranks_now_));
  session_.note("note: somebody asked for another plan: " + weighed.text() +
                (weighed.changes ? "; " + weighed.changes->text() : ""));
  if (weighed.plan) {
    set_plan(*weighed.plan);
  }
  return {.reason = weighed.text(),
          .plan = weighed.plan,
          .kept_step_time = weighed.kept,
          .new_step_time = weighed.better};
}

std::optional<double> Continuation::noise_scale() const {
  return batch_watch_ ? batch_watch_->noise_scale() : std::nullopt;
}

topology::Topology Continuation::cluster_of(const std::vector<Rank>& ranks) const {
  return plans_.cluster_of(ranks);
}

void Continuation::add_to(nlohmann::json& result, const runtime::JobResult& job) const {
  if (options_.survives_losses) {
    result["losses_of_workers"] = losses_json(job, plan_, changes_after_losses_);
  }
  if (watch_) {
    result["slow"] = watch_->findings_json();
    result["link_rates"] = watch_->link_rates_json();
    result["step_times_s"] = watch_->step_times_json();
  }
  if (!requests_.empty()) {
    result["replans_on_request"] = requests_json(requests_);
  }
  if (batch_watch_) {
    result["batch_decisions"] = batch_watch_->decisions_json();
    result["batches"] = batch_watch_->batches_json();
  }
}

plan::Plan Continuation::plan_for(const std::vector<Rank>& left) {
  SurvivalPlans::Other next = plans_.planned_anew(plan_now_, left);
  changes_after_losses_.insert_or_assign(left, std::move(next.changes));
  set_plan(next.plan);
  return std::move(next.plan);
}

/// That comes neither from one watch nor from the other.
void Continuation::set_plan(const plan::Plan& plan) {
  plan_now_ = plan;
  if (watch_) {
    watch_->set_plan(plan);
  }
  if (batch_watch_) {
    batch_watch_->set_plan(plan);
  }
}

}  // namespace rackrail::cli
