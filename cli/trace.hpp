// Timelines as a trace that ui.perfetto.dev and chrome://tracing open (Trace Event Format, JSON).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"

namespace rackrail::cli {

/// One timeline of a trace, shown as a process: "simulated", "measured", …
struct TraceProcess {
  std::string name;
  std::vector<plan::TimelineEvent> events;
};

/// Tracks become threads, in the order of their names; times are microseconds.
std::string to_trace_json(std::span<const TraceProcess> processes);

}  // namespace rackrail::cli
