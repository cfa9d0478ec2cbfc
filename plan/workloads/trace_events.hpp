// The events of a Chrome trace, one after another, without a tree of the whole text; used by
// kineto_trace.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::plan {

/// The fields of an event of phase X that the reader looks at; absent ones are empty or negative.
struct TraceEvent {
  std::string category, name;
  double start = 0, duration = 0;
  std::int64_t thread = -1;
  // Of `args`.
  std::int64_t correlation = -1, device = -1;
  std::string collective, dtype;
  std::int64_t in_elements = -1, out_elements = -1, group_size = -1;
  std::vector<std::vector<std::int64_t>> dims;
  std::vector<std::string> types;
};

/// What stands beside the events.
struct TraceHead {
  std::string device;
  std::int64_t world_size = -1;
};

/// Calls `take` for every event of phase X. Throws ConfigError for broken JSON.
TraceHead for_each_event(const std::string& file, std::string_view content,
                         const std::function<void(TraceEvent&)>& take);

}  // namespace rackrail::plan
