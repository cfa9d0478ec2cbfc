// What a debug log of NCCL says, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/measured/debug_log.hpp"

namespace rackrail::cli {

std::string debug_log_text(const sim::measured::DebugLog& log);
nlohmann::json debug_log_json(const sim::measured::DebugLog& log);

}  // namespace rackrail::cli
