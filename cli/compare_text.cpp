#include "cli/compare_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/parse_units.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

namespace {

nlohmann::json step_json(const std::optional<planner::LimitedStep>& step, Duration plan) {
  if (!step.has_value()) {
    return nullptr;
  }
  return {{"step_time_s", step->step_time.seconds()},
          {"bucket_bytes", step->bucket_size.count()},
          {"against_plan", step->step_time / plan - 1}};
}

std::string time_text(const std::optional<planner::LimitedStep>& step) {
  return step.has_value() ? to_string(step->step_time) : "-";
}

/// One of what is shown side by side.
struct Row {
  std::string name;
  const char* kind;
  std::string what;
  Duration step_time;
  const planner::FamilySteps* family = nullptr;
};

/// Families in use, each once.
std::string families_in(const plan::Plan& plan) {
  std::vector<std::string> names;
  for (const plan::TransferGraph& schedule : plan.schedules) {
    if (std::ranges::find(names, schedule.name()) == names.end()) {
      names.push_back(schedule.name());
    }
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

/// Fastest first; the plan before what is as fast.
std::vector<Row> rows_of(const planner::FamilyComparison& comparison, const plan::Plan& plan) {
  std::vector<Row> rows = {
      {"this plan", "plan", families_in(plan), plan.prediction.step_time, nullptr}};
  for (const planner::FamilySteps& family : comparison.families) {
    if (family.any.has_value()) {
      rows.push_back({family.family, "family", "", family.any->step_time, &family});
    }
  }
  for (const planner::UsualStep& usual : comparison.usual) {
    rows.push_back({usual.name, "usual", usual.what, usual.step_time, nullptr});
  }
  std::ranges::stable_sort(rows, {}, &Row::step_time);
  return rows;
}

std::string remarks_of(const planner::FamilySteps& family) {
  if (family.refusal.has_value()) {
    return fmt::format("not here         {}: {}\n", family.family, *family.refusal);
  }
  if (!family.fp32 && !family.fp16 && !family.any) {
    return family.was_stopped
               ? fmt::format("not tried        {}: the search ended before\n", family.family)
               : fmt::format("not here         {}: no codec fits\n", family.family);
  }
  std::string remarks;
  if (family.fp16_refusal.has_value()) {
    remarks += fmt::format("not in FP16      {}: {}\n", family.family, *family.fp16_refusal);
  }
  if (family.was_stopped) {
    remarks += fmt::format("not finished     {}: the search ended before\n", family.family);
  }
  return remarks;
}

}  // namespace

nlohmann::json comparison_json(const std::vector<planner::FamilySteps>& families, Duration plan) {
  nlohmann::json list = nlohmann::json::array();
  for (const planner::FamilySteps& family : families) {
    nlohmann::json row = {{"schedule", family.family}};
    if (family.was_stopped) {
      row["was_stopped"] = true;
    }
    if (family.refusal.has_value()) {
      row["refused"] = *family.refusal;
    } else {
      row["fp32"] = step_json(family.fp32, plan);
      row["fp16"] = step_json(family.fp16, plan);
      if (family.fp16_refusal.has_value()) {
        row["fp16_refused"] = *family.fp16_refusal;
      }
      row["any"] = step_json(family.any, plan);
    }
    list.push_back(std::move(row));
  }
  return list;
}

nlohmann::json side_by_side_json(const planner::FamilyComparison& comparison,
                                 const plan::Plan& plan) {
  const Duration step = plan.prediction.step_time;
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_of(comparison, plan)) {
    rows.push_back({{"name", row.name},
                    {"kind", row.kind},
                    {"what", row.what},
                    {"step_time_s", row.step_time.seconds()},
                    {"against_plan", row.step_time / step - 1}});
  }
  return rows;
}

std::string comparison_table(const planner::FamilyComparison& comparison, const plan::Plan& plan) {
  Table table({{"schedule alone"},
               {"fp32", Align::kRight},
               {"fp16", Align::kRight},
               {"any codec", Align::kRight},
               {"bucket", Align::kRight},
               {"against the plan", Align::kRight}});
  std::string remarks;
  std::string refusals;
  for (const planner::FamilySteps& family : comparison.families) {
    refusals += remarks_of(family);
    if (!family.any.has_value() && (family.fp32.has_value() || family.fp16.has_value())) {
      table.add_row({family.family, time_text(family.fp32), time_text(family.fp16), "-", "-", "-"});
    }
  }
  for (const Row& row : rows_of(comparison, plan)) {
    table.add_row({row.name, row.family != nullptr ? time_text(row.family->fp32) : "-",
                   row.family != nullptr ? time_text(row.family->fp16) : "-",
                   to_string(row.step_time),
                   row.family != nullptr ? to_string(row.family->any->bucket_size) : "-",
                   signed_percent(row.step_time / plan.prediction.step_time - 1)});
    if (!row.what.empty()) {
      remarks += fmt::format("{:<16} {}\n", row.name, row.what);
    }
  }
  return table.to_string() + remarks + refusals;
}

}  // namespace rackrail::cli
