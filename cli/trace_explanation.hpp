// What `rackrail explain` says of a trace.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/session.hpp"
#include "explore/explain_trace.hpp"

namespace rackrail::cli {

/// Of a file that is a trace, packed or not; none for other files and names. Notes it as an input.
/// Throws ConfigError for a trace that cannot be read.
std::optional<explore::TraceExplanation> explain_if_trace(Session& session,
                                                          const std::string& path);

nlohmann::json to_json(const explore::TraceExplanation& explanation);
/// On stdout.
void print(const explore::TraceExplanation& explanation, const std::string& path);

}  // namespace rackrail::cli
