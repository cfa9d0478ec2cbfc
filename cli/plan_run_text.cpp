#include "cli/plan_run_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/parse_units.hpp"
#include "cli/compare_text.hpp"
#include "cli/plan_report_text.hpp"
#include "cli/plan_text.hpp"
#include "cli/table.hpp"
#include "plan/codec_name.hpp"

namespace rackrail::cli {

namespace {

/// The first few of them.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  return fmt::format(
      "{}{}", fmt::join(first, ", "),
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
}

std::string host_table(const std::vector<explore::HostCountPoint>& points) {
  Table table({{"hosts", Align::kRight},
               {"ranks", Align::kRight},
               {"global batch", Align::kRight},
               {"step", Align::kRight},
               {"useful samples/s", Align::kRight},
               {"per host", Align::kRight},
               {""}});
  const explore::HostCountPoint& best = explore::best_host_count(points);
  const auto is_best = [&best](const explore::HostCountPoint& point) { return &point == &best; };
  for (const explore::HostCountPoint& point : points) {
    table.add_row(
        {std::to_string(point.hosts), std::to_string(point.ranks),
         std::to_string(point.global_batch), to_string(point.step_time),
         fmt::format("{:.1f}", point.goodput),
         fmt::format("{:.1f}", point.goodput / static_cast<double>(point.hosts)),
         fmt::format("{}{}{}", point.without.empty() ? "" : "without " + listed(point.without),
                     !point.without.empty() && is_best(point) ? "; " : "",
                     is_best(point) ? "fewest hosts within 1 % of the best" : "")});
  }
  return table.to_string();
}

}  // namespace

nlohmann::json plan_run_json(const MadePlan& made, const PlanRun& run) {
  nlohmann::json result = plan_json(made.plan);
  result["gradient_error"] = made.gradient_error;
  result["codec_errors"] = nlohmann::json::array();
  for (const auto& [codec, error] : made.codec_errors) {
    result["codec_errors"].push_back({{"codec", plan::to_string(codec)},
                                      {"error", error.error},
                                      {"source", plan::to_string(error.source)}});
  }
  result["search_time_s"] = run.search_seconds;
  if (run.has_budget) {
    result["was_stopped"] = run.was_stopped;
  }
  if (run.was_interrupted) {
    result["interrupted"] = true;
  }
  if (run.was_comparison_stopped) {
    result["comparison_was_stopped"] = *run.was_comparison_stopped;
  }
  if (made.target) {
    result["target"] = target_json(*made.target);
  }
  if (made.report) {
    result["report"] = report_json(*made.report, made.target);
  }
  if (!run.output.empty()) {
    result["output"] = run.output;
  }
  if (made.compared) {
    result["schedules"] = comparison_json(made.compared->families, made.plan.prediction.step_time);
    result["comparison"] = side_by_side_json(*made.compared, made.plan);
  }
  for (const explore::HostCountPoint& point : made.by_hosts) {
    result["goodput_by_hosts"].push_back({{"hosts", point.hosts},
                                          {"ranks", point.ranks},
                                          {"global_batch", point.global_batch},
                                          {"step_time_s", point.step_time.seconds()},
                                          {"goodput", point.goodput},
                                          {"without", point.without}});
  }
  return result;
}

std::string plan_run_text(const MadePlan& made, const PlanRun& run,
                          const topology::Topology& cluster, const plan::Workload& workload) {
  const plan::Plan& plan = made.plan;
  std::string text = fmt::format("{} on {}: {} ranks, {} of gradients, global batch {}\n\n",
                                 workload.name, cluster.name(), cluster.rank_count(),
                                 to_string(workload.gradient_bytes()), plan.batch.global_batch());
  text += fmt::format("{}\n{}\n", bucket_table(plan), prediction_table(plan));
  if (made.compared) {
    text += comparison_table(*made.compared, plan) + "\n";
  }
  if (!made.by_hosts.empty()) {
    text += host_table(made.by_hosts) + "\n";
  }
  if (made.report) {
    text += report_text(*made.report, plan) + "\n";
  }
  text += mechanism_lines(plan);
  text += fmt::format("synchronisation {:.1f} % of the step waits for gradients\n",
                      plan.prediction.sync_share * 100);
  text += fmt::format("bound           {}\n", plan.prediction.bound_reason);
  if (made.gradient_error > 0) {
    text += fmt::format("rounding        compression changes summed gradients by up to {:.2g} %\n",
                        made.gradient_error * 100);
  }
  for (const auto& [codec, error] : made.codec_errors) {
    text +=
        fmt::format("codec error     {}: {:.2g} % by one encoding, {}\n", plan::display_name(codec),
                    error.error * 100, plan::to_string(error.source));
  }
  text += fmt::format("learning rate   {}\n", plan.batch.learning_rate_rule);
  for (const std::string& note : plan.notes) {
    text += fmt::format("note            {}\n", note);
  }
  if (made.target) {
    text += fmt::format("time to target  {}\n", target_text(*made.target));
  }
  if (run.has_budget) {
    text += fmt::format(
        "time budget     {}{}\n",
        run.was_stopped ? "used up: with more time the search may find a faster plan"
                        : "not used up: the plan is the same without one",
        run.was_comparison_stopped.value_or(false) ? "; some comparisons are missing" : "");
  }
  text += fmt::format("searched        {:.2f} s\n", run.search_seconds);
  if (run.was_interrupted) {
    text += fmt::format("stopped by Ctrl-C: the best plan found so far, {:.1f} % over its bound\n",
                        plan.prediction.gap * 100);
  }
  text += run.output.empty() ? "not written; add -o plan.json to keep it\n"
                             : fmt::format("wrote           {}\n", run.output);
  return text;
}

}  // namespace rackrail::cli
