// Measured training steps by placement, and how they are divided into known and held-out ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace rackrail::explore {

/// Which devices took part: `replicas` in all, on `nodes` machines, at most `largest_node` on one.
struct MeasuredPlacement {
  std::string name;  ///< rows of the same name were measured on the same kind of placement
  std::int64_t nodes = 1;
  std::int64_t replicas = 1;
  std::int64_t largest_node = 1;
};

struct MeasuredStep {
  MeasuredPlacement placement;
  std::int64_t local_batch = 1;  ///< samples per device
  Duration step_time;
};

/// A CSV file with a line of titles: `local_bsz` and `step_time` (seconds), and where it ran:
/// either `placement`, a digit per node that says how many of its devices were used ("1142"), or
/// `num_nodes` and `num_replicas`, spread as evenly as they can be. Other columns are ignored.
/// Throws ConfigError.
std::vector<MeasuredStep> read_measured_steps(const std::filesystem::path& path);

enum class HoldOut { kRows, kPlacements };

struct DividedSteps {
  std::vector<MeasuredStep> known;
  std::vector<MeasuredStep> held_out;
};

/// A fifth is held out by a rule that looks at no time: kRows takes the rows whose "name/local
/// batch" has an FNV-1a hash (64 bits, upper half folded onto the lower) divisible by 5,
/// kPlacements all rows of the placements whose name has one.
DividedSteps divide(const std::vector<MeasuredStep>& steps, HoldOut what);

}  // namespace rackrail::explore
