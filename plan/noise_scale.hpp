// The gradient noise scale, estimated while training, and what it says about batch sizes.
//
// B_noise = tr(Σ)/|G|²: the batch, in samples, at which the noise of the averaged gradient is as
// large as the gradient (McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv
// 1812.06162). Here for ranks with unequal batches b_i: with B = Σ b_i, weights w_i = b_i/B and
// ḡ = Σ w_i·g_i of n ranks,
//   Ŝ = B·(Σ w_i·|g_i|² − |ḡ|²)/(n − 1)   and   |Ĝ|² = |ḡ|² − Ŝ/B
// are unbiased: E|g_i|² = |G|² + tr(Σ)/b_i, so Σ w_i·E|g_i|² = |G|² + n·tr(Σ)/B. For equal batches
// they are the two-batch estimators of that paper. A quotient of unbiased estimates is biased, so
// both are smoothed for themselves and divided then. Norms are those before any lossy encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace rackrail::plan {

/// What a step's ranks contribute, each its batch and the squared norm of its mean gradient.
struct LocalGradient {
  std::int64_t batch = 0;   ///< samples, all passes of the step
  double squared_norm = 0;  ///< |g_i|², of the mean over these samples
};

class NoiseScaleEstimator {
 public:
  /// Each step's weight is `memory` times that of the step after it, 0 <= memory < 1. Throws
  /// ConfigError outside.
  explicit NoiseScaleEstimator(double memory = 0.98);

  /// One step: at least two ranks, and |ḡ|² of the average weighted by batches. Steps whose norms
  /// are not finite are left out. Throws PlanError for fewer ranks and for batches below one.
  void add(std::span<const LocalGradient> ranks, double average_squared_norm);
  /// The same from sums over ranks that a program has at hand: Σ w_i·|g_i|², n and B.
  void add(double weighted_squared_norms, double average_squared_norm, std::size_t ranks,
           std::int64_t global_batch);

  /// Smoothed estimates; 0 before the first step. Either can be negative: they are differences.
  double gradient_variance() const;  ///< of tr(Σ), per sample
  double squared_gradient() const;   ///< of |G|²
  /// In samples; none while either estimate is not positive.
  std::optional<double> noise_scale() const;
  std::int64_t steps() const { return steps_; }

 private:
  double memory_;
  double weight_ = 0;
  double variance_ = 0;  // sums over steps, not yet divided by their weight
  double squared_ = 0;
  std::int64_t steps_ = 0;
};

/// What a sample of a batch of `batch` is worth against one at `base_batch`:
/// E(B) = (N + B₀)/(N + B) for noise scale N.
double statistical_efficiency(double noise_scale, double base_batch, double batch);

/// A noise scale at a moment of training.
struct NoiseAt {
  double progress = 0;     ///< steps at the base batch
  double noise_scale = 0;  ///< in samples
  bool operator==(const NoiseAt&) const = default;
};

/// The same over a whole training, for one batch throughout: samples needed are the mean of 1/E
/// over progress, so this is the inverse of that. N is linear in progress between points; `curve`
/// ascends and is not empty.
double statistical_efficiency(std::span<const NoiseAt> curve, double base_batch, double batch);
/// Mean of the noise scale over the curve's progress.
double mean_noise_scale(std::span<const NoiseAt> curve);

/// AdaScale's gain (Johnson et al., ICML 2020): steps at the base batch that a step of `batch` is
/// worth, r = (tr(Σ)/B₀ + |G|²)/(tr(Σ)/B + |G|²) = (N/B₀ + 1)/(N/B + 1), from 1 to B/B₀.
double adascale_gain(double noise_scale, double base_batch, double batch);

}  // namespace rackrail::plan
