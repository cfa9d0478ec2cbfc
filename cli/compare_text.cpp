#include "cli/compare_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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

std::string comparison_table(std::vector<planner::FamilySteps> families, Duration plan) {
  std::stable_sort(families.begin(), families.end(), [](const auto& a, const auto& b) {
    return a.any.has_value() && (!b.any.has_value() || a.any->step_time < b.any->step_time);
  });
  Table table({{"schedule alone"},
               {"fp32", Align::kRight},
               {"fp16", Align::kRight},
               {"any codec", Align::kRight},
               {"bucket", Align::kRight},
               {"against the plan", Align::kRight}});
  std::string refusals;
  for (const planner::FamilySteps& family : families) {
    if (family.refusal.has_value()) {
      refusals += fmt::format("not here         {}: {}\n", family.family, *family.refusal);
      continue;
    }
    if (!family.fp32 && !family.fp16 && !family.any) {
      refusals +=
          family.was_stopped
              ? fmt::format("not looked at    {}: the time budget was used up\n", family.family)
              : fmt::format("not here         {}: no codec fits\n", family.family);
      continue;
    }
    if (family.fp16_refusal.has_value()) {
      refusals += fmt::format("not in FP16      {}: {}\n", family.family, *family.fp16_refusal);
    }
    if (family.was_stopped) {
      refusals += fmt::format("not to the end   {}: the time budget was used up\n", family.family);
    }
    table.add_row(
        {family.family, time_text(family.fp32), time_text(family.fp16), time_text(family.any),
         family.any ? to_string(family.any->bucket_size) : "-",
         family.any ? fmt::format("{:+.1f} %", (family.any->step_time / plan - 1) * 100) : "-"});
  }
  return table.to_string() + refusals;
}

}  // namespace rackrail::cli
