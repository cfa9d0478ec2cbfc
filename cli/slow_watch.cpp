#include "cli/slow_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/parse_units.hpp"
#include "plan/format.hpp"

namespace rackrail::cli {

namespace {

constexpr const char* kNewPlan = "new plan";

}  // namespace

SlowWatch::SlowWatch(Action action, plan::Plan plan, const topology::Topology& cluster,
                     SurvivalPlans& plans, const runtime::DetectorOptions& options,
                     std::function<void(const std::string&)> say)
    : action_(action),
      plan_(std::move(plan)),
      rank_names_(plan_.rank_names),
      cluster_(cluster),
      plans_(plans),
      detector_(cluster, options),
      say_(std::move(say)) {
  for (std::size_t rank = 0; rank < plan_.rank_count(); ++rank) {
    ranks_.emplace_back(rank);
  }
}

std::optional<runtime::JobOptions::BetterPlan> SlowWatch::measured(
    const runtime::StepMeasurement& step) {
  Duration& longest = step_times_[step.step];
  longest = std::max(longest, step.step_time);
  std::optional<runtime::SlowFinding> finding = detector_.add(step);
  if (!finding) {
    return std::nullopt;
  }
  const std::string text = describe(*finding);
  say_(text);
  Entry& entry = entries_.emplace_back(Entry{.finding = *std::move(finding),
                                             .text = text,
                                             .outcome = "reported",
                                             .kept = {},
                                             .better = {},
                                             .begin = {}});
  if (action_ == Action::kReport) {
    return std::nullopt;
  }
  std::optional<plan::Plan> plan = plan_after(entry);
  if (!plan) {
    say_(entry.outcome);
    return std::nullopt;
  }
  plan_ = *plan;
  return runtime::JobOptions::BetterPlan{text, *std::move(plan)};
}

/// None where the one in use is as good; the entry says what came of it.
std::optional<plan::Plan> SlowWatch::plan_after(Entry& entry) {
  try {
    plans_.set_condition(detector_.rates(), detector_.factors());
    SurvivalPlans::Weighed weighed = plans_.weigh(plan_, ranks_);
    entry.kept = weighed.kept;
    entry.better = weighed.better;
    entry.outcome = weighed.plan ? kNewPlan : weighed.text();
    entry.changes = std::move(weighed.changes);
    if (entry.changes) {
      say_(weighed.text() + "; " + entry.changes->text());
    }
    return std::move(weighed.plan);
  } catch (const std::exception& error) {
    entry.outcome = fmt::format("no plan: {}", error.what());
    return std::nullopt;
  }
}

void SlowWatch::began(const runtime::EpochBegin& begin) {
  ranks_ = begin.seats;
  detector_.begin(begin.seats);
  step_times_.erase(step_times_.upper_bound(begin.step), step_times_.end());
  // A plan that somebody asked for is not that of a finding.
  const bool is_own = begin.is_change && !entries_.empty() && entries_.back().outcome == kNewPlan &&
                      !entries_.back().begin;
  if (is_own) {
    entries_.back().begin = begin;
  }
}

std::string SlowWatch::names_of(const std::vector<LinkId>& links) const {
  constexpr std::size_t kMostNames = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(links.size(), kMostNames); ++i) {
    names += (i == 0 ? "" : " or ") + cluster_.link_name(links[i]);
  }
  return links.size() > kMostNames ? fmt::format("{} or {} more", names, links.size() - kMostNames)
                                   : names;
}

std::string SlowWatch::describe(const runtime::SlowFinding& finding) const {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const runtime::LinkFinding& link : finding.links) {
    add(fmt::format("{} {} at {} (planned: {})", names_of(link.links),
                    link.is_back ? "is back" : "is slow", to_string(link.rate),
                    to_string(cluster_.link(link.links.front()).bandwidth)));
  }
  for (const runtime::RankFinding& rank : finding.ranks) {
    const std::string& name = rank_names_.at(rank.rank.index());
    if (rank.factor == 1) {
      add(fmt::format("{} computes at its first speed again", name));
    } else if (rank.samples) {
      add(fmt::format("{} takes {:.1f} times as long for {} samples as it should", name,
                      rank.factor, *rank.samples));
    } else {
      add(fmt::format("{} takes {:.1f} times as long per sample as at the start", name,
                      rank.factor));
    }
  }
  return fmt::format("after step {}: {}; a step takes {} instead of {}", finding.step, text,
                     to_string(finding.step_now), to_string(finding.step_before));
}

nlohmann::json SlowWatch::findings_json() const {
  const auto seconds = [](const std::optional<Duration>& time) {
    return time ? nlohmann::json(time->seconds()) : nlohmann::json();
  };
  nlohmann::json result = nlohmann::json::array();
  for (const Entry& entry : entries_) {
    nlohmann::json links = nlohmann::json::array();
    for (const runtime::LinkFinding& found : entry.finding.links) {
      nlohmann::json names = nlohmann::json::array();
      for (const LinkId link : found.links) {
        names.push_back(cluster_.link_name(link));
      }
      links.push_back(
          {{"one_of", names},
           {"planned_Bps", cluster_.link(found.links.front()).bandwidth.bytes_per_second()},
           {"now_Bps", found.rate.bytes_per_second()},
           {"is_back", found.is_back}});
    }
    nlohmann::json ranks = nlohmann::json::array();
    for (const runtime::RankFinding& found : entry.finding.ranks) {
      ranks.push_back(
          {{"rank", rank_names_.at(found.rank.index())},
           {"time_factor", found.factor},
           {"samples", found.samples ? nlohmann::json(*found.samples) : nlohmann::json()}});
    }
    nlohmann::json one = {{"text", entry.text},
                          {"step", entry.finding.step},
                          {"links", links},
                          {"ranks", ranks},
                          {"step_time_before_s", entry.finding.step_before.seconds()},
                          {"step_time_s", entry.finding.step_now.seconds()},
                          {"outcome", entry.outcome},
                          {"kept_step_time_s", seconds(entry.kept)},
                          {"new_step_time_s", seconds(entry.better)},
                          {"changes", entry.changes ? entry.changes->json() : nlohmann::json()},
                          {"new_plan_from_step", nullptr},
                          {"resumed_after_s", nullptr}};
    if (entry.begin) {
      one["new_plan_from_step"] = entry.begin->step;
      one["resumed_after_s"] = entry.begin->pause.seconds();
    }
    result.push_back(std::move(one));
  }
  return result;
}

nlohmann::json SlowWatch::link_rates_json() const {
  nlohmann::json result = nlohmann::json::array();
  for (const auto& [link, rate] : detector_.rates()) {
    result.push_back({{"link", cluster_.link_name(link)},
                      {"planned_Bps", cluster_.link(link).bandwidth.bytes_per_second()},
                      {"now_Bps", rate.bytes_per_second()}});
  }
  return result;
}

nlohmann::json SlowWatch::step_times_json() const {
  nlohmann::json result = nlohmann::json::array();
  for (const auto& [step, time] : step_times_) {
    result.push_back({step, time.seconds()});
  }
  return result;
}

}  // namespace rackrail::cli
