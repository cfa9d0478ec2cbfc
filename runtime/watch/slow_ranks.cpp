#include "runtime/watch/slow_ranks.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/watch/samples.hpp"

namespace rackrail::runtime {
namespace {

// Batches whose ratio is nearer to 1 say nothing of what depends on them.
constexpr double kOtherBatch = 1.1;
// A time that is nearer than this to the assumed one confirms it.
constexpr double kAsAssumed = 1.15;

bool is_about(double ratio, double most) { return std::abs(std::log(ratio)) < std::log(most); }

}  // namespace

ComputeLine slow_line(const std::vector<BatchFactor>& factors, const ComputeLine& well) {
  const BatchFactor& latest = factors.back();
  const double seconds = latest.factor * well.at(latest.samples);
  if (factors.size() < 2) {
    return {latest.factor * well.fixed, latest.factor * well.per_sample};
  }
  const BatchFactor& earlier = factors.front();
  const double slope = (earlier.factor * well.at(earlier.samples) - seconds) /
                       static_cast<double>(earlier.samples - latest.samples);
  const double steepest = seconds / static_cast<double>(latest.samples);  // nothing is fixed
  const double per_sample = std::min(std::max(slope, well.per_sample), steepest);
  return {seconds - per_sample * static_cast<double>(latest.samples), per_sample};
}

ComputeLine SlowRanks::profile_of(Rank rank) const {
  if (!profile_) {
    return {};
  }
  const ComputeLine line = profile_(rank);
  const ComputeLine usable{std::max(line.fixed, 0.0), std::max(line.per_sample, 0.0)};
  return usable.at(1) > 0 ? usable : ComputeLine{};  // a profile may have no times
}

double SlowRanks::factor(Rank rank, std::int64_t samples) const {
  const auto found = factors_.find(rank);
  if (found == factors_.end()) {
    return 1;
  }
  const ComputeLine well = profile_of(rank);
  return slow_line(found->second, well).at(samples) / well.at(samples);
}

/// Of each rank to its profile, by the median of those that are well (where none is, of all).
std::map<Rank, double> SlowRanks::ratios(const std::map<Rank, ComputedStep>& steps) const {
  std::map<Rank, double> result;
  std::vector<double> of_the_well;
  std::vector<double> of_all;
  for (const auto& [rank, step] : steps) {
    const double ratio = step.seconds / profile_of(rank).at(step.samples);
    result[rank] = ratio;
    of_all.push_back(ratio);
    if (!is_slow(rank)) {
      of_the_well.push_back(ratio);
    }
  }
  const double common = lower_median(of_the_well.empty() ? of_all : of_the_well);
  for (auto& [rank, ratio] : result) {
    ratio /= common;
  }
  return result;
}

void SlowRanks::set(const std::map<Rank, double>& factors,
                    const std::map<Rank, ComputedStep>& steps) {
  for (const auto& [rank, factor] : factors) {
    factors_.erase(rank);
    ratios_.erase(rank);
    if (factor != 1) {
      factors_[rank] = {{steps.at(rank).samples, factor}};
    }
  }
  const std::map<Rank, double> now = ratios(steps);  // once it is known who is well
  for (const auto& [rank, factor] : factors) {
    if (factor != 1) {
      ratios_[rank] = now.at(rank);
    }
  }
}

std::vector<Rank> SlowRanks::refine(const std::map<Rank, ComputedStep>& steps) {
  std::vector<Rank> changed;
  const std::map<Rank, double> now = ratios(steps);
  for (auto& [rank, factors] : factors_) {
    const auto step = steps.find(rank);
    if (step == steps.end()) {
      continue;
    }
    const std::int64_t samples = step->second.samples;
    const BatchFactor& latest = factors.back();
    if (is_about(static_cast<double>(samples) / static_cast<double>(latest.samples), kOtherBatch)) {
      continue;
    }
    const double assumed = factor(rank, samples);
    const double found = latest.factor * now.at(rank) / ratios_.at(rank);
    if (is_about(found / assumed, kAsAssumed)) {
      continue;
    }
    factors = {latest, {samples, found}};
    ratios_[rank] = now.at(rank);
    changed.push_back(rank);
  }
  return changed;
}

}  // namespace rackrail::runtime
