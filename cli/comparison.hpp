// A predicted time beside the measured one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace rackrail::cli {

struct Compared {
  std::string what;
  std::string how;  ///< what moved the data
  Duration predicted;
  Duration measured;
  /// (predicted − measured) / measured
  double error() const { return predicted / measured - 1; }
};

std::string comparison_table(const std::string& title, const std::vector<Compared>& cases);
nlohmann::json to_json(const Compared& one);

}  // namespace rackrail::cli
