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

/// Of several predictions.
struct ErrorSummary {
  /// e^mean(|log predicted/measured|) − 1: how far they are off by a factor, whichever is larger.
  /// Can be more than the worst error, which of a time that is too small is never beyond −1.
  double mean = 0;
  double median = 0;  ///< of the errors without their signs
  double worst = 0;   ///< the error furthest from zero, with its sign
};
/// At least one error, each as Compared::error().
ErrorSummary summarise(const std::vector<double>& errors);
/// "off by a factor of 1.043 in the geometric mean; error: median 3.1 %, worst -9.8 %"
std::string summary_text(const ErrorSummary& summary);

/// "+4.2 %"
std::string error_text(double error);

std::string comparison_table(const std::string& title, const std::vector<Compared>& cases);
nlohmann::json to_json(const Compared& one);

}  // namespace rackrail::cli
