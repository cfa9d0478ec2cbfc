#include "plan/noise_scale.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rackrail::plan {

NoiseScaleEstimator::NoiseScaleEstimator(double memory) : memory_(memory) {
  if (!(memory >= 0 && memory < 1)) {
    throw ConfigError(ErrorContext{"", "memory of the noise scale", fmt::format("{}", memory),
                                   "at least 0 and below 1"});
  }
}

void NoiseScaleEstimator::add(std::span<const LocalGradient> ranks, double average_squared_norm) {
  std::int64_t global = 0;
  double sum = 0;
  for (const LocalGradient& rank : ranks) {
    if (rank.batch < 1) {
      throw PlanError(ErrorContext{"", "noise scale", fmt::format("a batch of {}", rank.batch),
                                   "at least one sample on each rank"});
    }
    global += rank.batch;
    sum += static_cast<double>(rank.batch) * rank.squared_norm;
  }
  add(sum / static_cast<double>(global), average_squared_norm, ranks.size(), global);
}

void NoiseScaleEstimator::add(double weighted_squared_norms, double average_squared_norm,
                              std::size_t ranks, std::int64_t global_batch) {
  if (ranks < 2) {
    throw PlanError(ErrorContext{"", "noise scale",
                                 counted(static_cast<std::int64_t>(ranks), "rank"),
                                 "at least two, whose gradients differ"});
  }
  if (!std::isfinite(weighted_squared_norms) || !std::isfinite(average_squared_norm)) {
    return;
  }
  const auto batch = static_cast<double>(global_batch);
  const double variance =
      batch * (weighted_squared_norms - average_squared_norm) / static_cast<double>(ranks - 1);
  variance_ = memory_ * variance_ + variance;
  squared_ = memory_ * squared_ + (average_squared_norm - variance / batch);
  weight_ = memory_ * weight_ + 1;
  ++steps_;
}

double NoiseScaleEstimator::gradient_variance() const {
  return steps_ > 0 ? variance_ / weight_ : 0;
}

double NoiseScaleEstimator::squared_gradient() const { return steps_ > 0 ? squared_ / weight_ : 0; }

std::optional<double> NoiseScaleEstimator::noise_scale() const {
  if (!(variance_ > 0) || !(squared_ > 0)) {
    return std::nullopt;
  }
  return variance_ / squared_;
}

double statistical_efficiency(double noise_scale, double base_batch, double batch) {
  return (noise_scale + base_batch) / (noise_scale + batch);
}

double statistical_efficiency(std::span<const NoiseAt> curve, double base_batch, double batch) {
  if (curve.size() == 1) {
    return statistical_efficiency(curve.front().noise_scale, base_batch, batch);
  }
  // 1/E = 1 + (B − B₀)/(N + B₀); the mean of 1/(N + B₀) over a stretch on which N is linear from N₁
  // to N₂ is ln((N₂ + B₀)/(N₁ + B₀))/(N₂ − N₁).
  double mean = 0;
  const double whole = curve.back().progress - curve.front().progress;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const double first = curve[i - 1].noise_scale + base_batch;
    const double rise = curve[i].noise_scale - curve[i - 1].noise_scale;
    constexpr double kLevel = 1e-9;
    const double inverse =
        std::abs(rise) < kLevel * first ? 1 / first : std::log1p(rise / first) / rise;
    mean += (curve[i].progress - curve[i - 1].progress) / whole * inverse;
  }
  return 1 / (1 + (batch - base_batch) * mean);
}

double mean_noise_scale(std::span<const NoiseAt> curve) {
  if (curve.size() == 1) {
    return curve.front().noise_scale;
  }
  double sum = 0;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    sum += (curve[i].progress - curve[i - 1].progress) *
           (curve[i].noise_scale + curve[i - 1].noise_scale) / 2;
  }
  return sum / (curve.back().progress - curve.front().progress);
}

double adascale_gain(double noise_scale, double base_batch, double batch) {
  return (noise_scale / base_batch + 1) / (noise_scale / batch + 1);
}

}  // namespace rackrail::plan
