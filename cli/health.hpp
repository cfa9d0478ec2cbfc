// Figures that tell at a glance whether a training step is well spent, with their thresholds.
#pragma once

#include <string>
#include <vector>

#include "plan/cost_model.hpp"

namespace rackrail::cli {

struct HealthFigure {
  std::string what;
  double value = 0;   ///< a share, 0 to 1
  std::string limit;  ///< in words: "below 20 %"
  bool is_healthy = false;
};

/// Of a simulated step: its share of gradient synchronisation that nothing hides, and how long the
/// busiest device computes. Below a fifth and above seven tenths communication is no concern.
std::vector<HealthFigure> health(const plan::StepEstimate& estimate);

}  // namespace rackrail::cli
