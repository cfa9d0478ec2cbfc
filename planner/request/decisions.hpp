// What a search looked at, and why it took or left it: for who asks why a plan is as it is.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/units.hpp"

namespace rackrail::planner {

struct Decision {
  std::string about;              ///< "bucket of 25.0 MiB", "step with buckets of 25.0 MiB"
  std::string schedule;           ///< plan::TransferGraph::label(), or a family's name
  std::string codecs;             ///< "fp32", "int8 inside, fp16 across"; empty: of all kinds
  std::optional<Duration> bound;  ///< it takes no less
  std::optional<Duration> time;   ///< where it was simulated to its end
  std::string outcome;            ///< "chosen", or why not
};

/// Called by the search, on its thread. Empty: nobody asks.
using DecisionLog = std::function<void(const Decision&)>;

}  // namespace rackrail::planner
