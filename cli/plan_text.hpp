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
/// Step time against the bound and the baselines.
std::string prediction_table(const plan::Plan& plan);
/// "int8 across racks, fp16 inside" or "none".
std::string codec_text(const plan::Bucket& bucket);

}  // namespace rackrail::cli
