// The gradient noise scale along training, out of runs at several batch sizes.
//
// Progress is counted in steps at the base batch B₀: a step of batch B moves it on by AdaScale's
// gain r = (N/B₀ + 1)/(N/B + 1), so N steps a run needs for a stretch of progress are ∫ dp/r. The
// noise scale N grows along training, and with the batch that the run uses (a larger one lets the
// parameters settle where gradients are smaller); between and beyond runs log N is linear in log B
// at equal progress, within a run in progress.
#pragma once

#include <filesystem>
#include <vector>

namespace rackrail::explore {

struct NoisePoint {
  double progress = 0;     ///< steps at the base batch
  double steps = 0;        ///< of the run, since its beginning
  double noise_scale = 0;  ///< in samples
};

struct NoiseRun {
  double batch = 0;                ///< samples per step
  std::vector<NoisePoint> points;  ///< ascending in progress
};

/// Files `…-BATCH.csv` with columns progress, iteration, grad_sqr and grad_var, the latter at the
/// base batch as Pollux logs it: N = B₀·grad_var/grad_sqr. The base batch is the smallest of them.
/// Runs come by ascending batch. Throws ConfigError, also for two files of one batch.
std::vector<NoiseRun> read_noise_runs(const std::vector<std::filesystem::path>& paths);

class NoisePath {
 public:
  /// Throws ConfigError without a run, or for a run without points, and unless batches, progress
  /// and noise scales are positive.
  explicit NoisePath(std::vector<NoiseRun> runs);

  /// Noise scale at a progress of a run with that batch; before the first and after the last point
  /// of a run its value there holds.
  double at(double progress, double batch) const;
  /// Steps of `batch` for progress from `from` to `to`.
  double steps(double from, double to, double base_batch, double batch) const;
  /// How far at() is from what a run logged: the median of |log(predicted/measured)| over its
  /// points. exp() of it is the factor by which half of them are off at most.
  double median_log_error(const NoiseRun& run) const;

 private:
  std::vector<NoiseRun> runs_;
};

}  // namespace rackrail::explore
