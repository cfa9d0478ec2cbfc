#include "cli/health.hpp"

namespace rackrail::cli {

std::vector<HealthFigure> health(const plan::StepEstimate& estimate) {
  constexpr double kMostSynchronisation = 0.2;
  constexpr double kLeastBusy = 0.7;
  const double busy = estimate.step_time > Duration()
                          ? estimate.compute_time.seconds() / estimate.step_time.seconds()
                          : 0;
  return {{"gradient synchronisation", estimate.sync_share, "below 20 %",
           estimate.sync_share < kMostSynchronisation},
          {"device busy", busy, "above 70 %", busy > kLeastBusy}};
}

}  // namespace rackrail::cli
