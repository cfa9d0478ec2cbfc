#include "runtime/coordinator/pair_rates.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace rackrail::runtime {

void PairRates::add(const StepMeasurement& step) {
  auto& steps = steps_[step.rank];
  steps.push_back(step.received);
  if (steps.size() > kLatestSteps) {
    steps.pop_front();
  }
}

std::vector<PairRate> PairRates::rates() const {
  constexpr double kMost = 1e18;  // bytes per second: what claims more has not measured anything
  std::vector<PairRate> result;
  for (const auto& [rank, steps] : steps_) {
    std::map<Rank, std::pair<double, double>> traffic;  // bytes and seconds by source
    for (const std::vector<PairTraffic>& step : steps) {
      for (const PairTraffic& one : step) {
        auto& [bytes, busy] = traffic[one.source];
        bytes += static_cast<double>(one.bytes.count());
        busy += one.busy.seconds();
      }
    }
    for (const auto& [source, sums] : traffic) {
      const auto& [bytes, busy] = sums;
      if (bytes > 0 && busy > 0) {
        const auto rate = static_cast<std::int64_t>(std::min(kMost, bytes / busy));
        result.push_back({.source = source, .destination = rank, .rate = Bandwidth(rate)});
      }
    }
  }
  std::ranges::sort(result, [](const PairRate& a, const PairRate& b) {
    return std::tuple(a.rate, a.source, a.destination) <
           std::tuple(b.rate, b.source, b.destination);
  });
  return result;
}

}  // namespace rackrail::runtime
