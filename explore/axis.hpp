// One varied field: the path of the field and the values it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config_tree.hpp"

namespace rackrail::explore {

/// Values between two ends with the same unit, evenly spaced by difference or by ratio.
struct Range {
  double from = 0;
  double to = 0;
  std::string unit;    ///< what follows the number, with the space before it; may be empty
  bool log = false;    ///< equal ratios instead of equal differences; both ends above 0
  bool whole = false;  ///< rounded to whole numbers
  /// The value at a place in 0..1 as text; the ends as they were given, 6 significant digits
  /// between them.
  std::string at(double place) const;
};

/// Exactly one of values and range is there.
struct Axis {
  std::string path;                 ///< "cluster.…", "workload.…" or "plan.…"
  std::vector<std::string> values;  ///< each once
  std::optional<Range> range;       ///< for random search only

  /// Random draw `number` of a search with this seed: uniform over the values, or over the range
  /// on its scale. The same on every machine, and independent of the other axes.
  std::string draw(std::uint64_t seed, std::uint64_t number) const;
};

/// `{values: […]}`, a list alone, or `{from:, to:, steps:, scale: linear|log, whole: true}`; steps
/// may be left out where `for_random`. Throws ConfigError with line and field.
Axis read_axis(const std::string& path, const ConfigValue& value, bool for_random);

}  // namespace rackrail::explore
