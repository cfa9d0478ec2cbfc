#include "cli/plan_report_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/parse_units.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kChoicesShown = 3;
/// A choice that buys less than this share is not worth a line.
constexpr double kShown = 0.0005;

nlohmann::json alternative_json(const planner::Alternative& alternative,
                                const std::optional<explore::TimeToTarget>& target,
                                double plan_cost) {
  nlohmann::json row = {{"name", alternative.name},
                        {"what", alternative.what},
                        {"step_time_s", alternative.step_time.seconds()},
                        {"global_batch", alternative.global_batch},
                        {"against_plan", alternative.against_plan}};
  if (target.has_value()) {
    row["time_to_target_s"] = plan_cost * (1 + alternative.against_plan);
  }
  return row;
}

std::string time_text(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  constexpr double kDay = 86400;
  if (seconds < 2 * kMinute) {
    return fmt::format("{:.1f} s", seconds);
  }
  if (seconds < 2 * kHour) {
    return fmt::format("{:.1f} min", seconds / kMinute);
  }
  return seconds < 2 * kDay ? fmt::format("{:.1f} h", seconds / kHour)
                            : fmt::format("{:.1f} days", seconds / kDay);
}

std::string choices_text(const planner::PlanReport& report) {
  std::string text;
  std::size_t shown = 0;
  for (const planner::Alternative& choice : report.choices) {
    if (shown == kChoicesShown || choice.against_plan < kShown) {
      break;
    }
    text +=
        fmt::format("choice {}        {}: {} would take {} ({})\n", ++shown, choice.name,
                    choice.what, to_string(choice.step_time), signed_percent(choice.against_plan));
  }
  if (shown > 0 || !report.not_reached.empty()) {
    return text;  // what was not reached may matter
  }
  return "choices         none matters alone: the usual ones take as long\n";
}

std::string table_text(const planner::PlanReport& report, const plan::Plan& plan) {
  Table table({{"other plans"},
               {"step time", Align::kRight},
               {"global batch", Align::kRight},
               {"time per useful sample", Align::kRight},
               {"what"}});
  table.add_row({"this plan", to_string(plan.prediction.step_time),
                 std::to_string(plan.batch.global_batch()), "", ""});
  for (const auto* group : {&report.single_knobs, &report.baselines}) {
    for (const planner::Alternative& row : *group) {
      table.add_row({row.name, to_string(row.step_time), std::to_string(row.global_batch),
                     signed_percent(row.against_plan), row.what});
    }
  }
  return table.to_string();
}

/// Whether a plan could beat the best single knob at all, where the joint one hardly does.
std::string single_knob_text(const planner::PlanReport& report, const plan::Plan& plan) {
  if (report.single_knobs.empty()) {
    return "";
  }
  const planner::Alternative& best = report.single_knobs.front();
  if (best.against_plan >= kShown) {
    return fmt::format("best alone      {}: {} time per useful sample\n", best.name,
                       signed_percent(best.against_plan));
  }
  return fmt::format(
      "best alone      {} is as good as the plan; no plan can gain more than {:.1f} %\n", best.name,
      plan.prediction.gap / (1 + plan.prediction.gap) * 100);
}

}  // namespace

nlohmann::json report_json(const planner::PlanReport& report,
                           const std::optional<explore::TimeToTarget>& target) {
  const double plan_seconds = target.has_value() ? target->seconds : 0;
  const auto list = [&](const std::vector<planner::Alternative>& alternatives) {
    nlohmann::json rows = nlohmann::json::array();
    for (const planner::Alternative& alternative : alternatives) {
      rows.push_back(alternative_json(alternative, target, plan_seconds));
    }
    return rows;
  };
  nlohmann::json result = {{"baselines", list(report.baselines)},
                           {"single_knobs", list(report.single_knobs)},
                           {"choices", list(report.choices)}};
  if (!report.not_reached.empty()) {
    result["not_reached"] = report.not_reached;
  }
  if (report.unprotected.has_value()) {
    result["unprotected"] = alternative_json(*report.unprotected, target, plan_seconds);
  }
  return result;
}

std::string report_text(const planner::PlanReport& report, const plan::Plan& plan) {
  std::string text = table_text(report, plan) + "\n" + choices_text(report);
  text += single_knob_text(report, plan);
  if (report.unprotected.has_value()) {
    text += fmt::format(
        "outer layers    compressed like the others (--compress-outer-layers): {} ({})\n",
        to_string(report.unprotected->step_time), signed_percent(report.unprotected->against_plan));
  }
  if (!report.not_reached.empty()) {
    text += fmt::format("not tried       {}: the search ended before\n",
                        fmt::join(report.not_reached, "; "));
  }
  return text;
}

nlohmann::json target_json(const explore::TimeToTarget& target) {
  return {{"samples", target.samples},
          {"steps", target.steps},
          {"time_s", target.seconds},
          {"source", target.source}};
}

std::string target_text(const explore::TimeToTarget& target) {
  return fmt::format("{}: {:.0f} steps for {:.4g} samples at the base batch ({})",
                     time_text(target.seconds), target.steps, target.samples, target.source);
}

}  // namespace rackrail::cli
