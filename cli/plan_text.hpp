// Plans and predictions as tables and JSON: shared by `plan`, `simulate`, `verify` and `report`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/plan.hpp"

namespace rackrail::cli {

/// The keys that `plan --json` prints, without search_time_s.
nlohmann::json plan_json(const plan::Plan& plan);
/// One row per bucket: size, schedule, codec, codec per tier, slices.
std::string bucket_table(const plan::Plan& plan);
/// How its schedules were made, a line for each that several buckets may have; empty where their
/// names say it.
std::string mechanism_lines(const plan::Plan& plan);
/// Step time against the bound and the baselines; where a baseline has another batch than the plan,
/// the bound does not hold for it and there is no such figure.
std::string prediction_table(const plan::Plan& plan);
/// The baseline's name, with its batch where that is not the plan's.
std::string baseline_text(const plan::Plan& plan, const std::string& baseline);
/// "int8 across racks, fp16 inside" or "fp32".
std::string codec_text(const plan::Bucket& bucket);

}  // namespace rackrail::cli
