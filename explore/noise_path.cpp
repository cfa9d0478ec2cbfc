#include "explore/noise_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "plan/noise_scale.hpp"

namespace rackrail::explore {

namespace {

constexpr std::int64_t kMostIterations = 1'000'000'000'000;

double batch_in_name(const std::filesystem::path& path) {
  const std::string name = path.stem().string();
  const std::string digits = name.substr(name.rfind('-') + 1);
  std::int64_t batch = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), batch);
  if (error != std::errc() || end != digits.data() + digits.size() || batch < 1) {
    throw ConfigError(ErrorContext{path.string(), "", "no batch in the name",
                                   "a file named like 'validation-128.csv'"});
  }
  return static_cast<double>(batch);
}

double log_noise_at(const NoiseRun& run, double progress) {
  const auto after = std::find_if(run.points.begin(), run.points.end(),
                                  [&](const NoisePoint& p) { return p.progress >= progress; });
  if (after == run.points.begin()) {
    return std::log(after->noise_scale);
  }
  const NoisePoint& before = *std::prev(after);
  if (after == run.points.end()) {
    return std::log(before.noise_scale);
  }
  const double share = (progress - before.progress) / (after->progress - before.progress);
  return (1 - share) * std::log(before.noise_scale) + share * std::log(after->noise_scale);
}

}  // namespace

std::vector<NoiseRun> read_noise_runs(const std::vector<std::filesystem::path>& paths) {
  std::vector<NoiseRun> runs;
  for (const std::filesystem::path& path : paths) {
    NoiseRun run{batch_in_name(path), {}};
    const CsvTable table = CsvTable::read(path);
    for (std::size_t row = 0; row < table.rows(); ++row) {
      const NoisePoint point{table.positive(row, "progress"),
                             static_cast<double>(table.whole(row, "iteration", kMostIterations)),
                             table.positive(row, "grad_var") / table.positive(row, "grad_sqr")};
      if (!run.points.empty() && (point.progress <= run.points.back().progress ||
                                  point.steps <= run.points.back().steps)) {
        table.fail(row, "progress", "progress and iteration above the row before");
      }
      run.points.push_back(point);
    }
    if (run.points.empty()) {
      throw ConfigError(ErrorContext{path.string(), "", "no rows", "at least one"});
    }
    runs.push_back(std::move(run));
  }
  std::sort(runs.begin(), runs.end(),
            [](const NoiseRun& a, const NoiseRun& b) { return a.batch < b.batch; });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0 && runs[i].batch == runs[i - 1].batch) {
      throw ConfigError(ErrorContext{"", "runs", fmt::format("two of batch {}", runs[i].batch),
                                     "one of each batch"});
    }
    for (NoisePoint& point : runs[i].points) {
      point.noise_scale *= runs.front().batch;
    }
  }
  return runs;
}

NoisePath::NoisePath(std::vector<NoiseRun> runs) : runs_(std::move(runs)) {
  const auto refuse = [](const std::string& found) {
    throw ConfigError(
        ErrorContext{"", "noise along training", found,
                     "runs with points of ascending progress, positive batches and noise scales"});
  };
  if (runs_.empty()) {
    refuse("no run");
  }
  for (const NoiseRun& run : runs_) {
    if (run.points.empty() || !(run.batch > 0)) {
      refuse(fmt::format("batch {} with {} points", run.batch, run.points.size()));
    }
    double last = 0;
    for (const NoisePoint& point : run.points) {
      if (!(point.progress > last) || !(point.noise_scale > 0)) {
        refuse(fmt::format("noise scale {} at progress {}", point.noise_scale, point.progress));
      }
      last = point.progress;
    }
  }
}

double NoisePath::at(double progress, double batch) const {
  double mean_x = 0;
  double mean_y = 0;
  const auto count = static_cast<double>(runs_.size());
  for (const NoiseRun& run : runs_) {
    mean_x += std::log(run.batch) / count;
    mean_y += log_noise_at(run, progress) / count;
  }
  double xy = 0;
  double xx = 0;
  for (const NoiseRun& run : runs_) {
    const double x = std::log(run.batch) - mean_x;
    xy += x * (log_noise_at(run, progress) - mean_y);
    xx += x * x;
  }
  const double slope = xx > 0 ? xy / xx : 0;
  return std::exp(mean_y + slope * (std::log(batch) - mean_x));
}

double NoisePath::steps(double from, double to, double base_batch, double batch) const {
  // Midpoint rule; the path's own points are a hundredth of training apart.
  constexpr int kPieces = 1000;
  const double width = (to - from) / kPieces;
  double steps = 0;
  for (int i = 0; i < kPieces; ++i) {
    const double noise = at(from + (i + 0.5) * width, batch);
    steps += width / plan::adascale_gain(noise, base_batch, batch);
  }
  return steps;
}

double NoisePath::median_log_error(const NoiseRun& run) const {
  std::vector<double> errors;
  for (const NoisePoint& point : run.points) {
    errors.push_back(std::abs(std::log(at(point.progress, run.batch) / point.noise_scale)));
  }
  std::sort(errors.begin(), errors.end());
  const std::size_t middle = errors.size() / 2;
  return errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
}

}  // namespace rackrail::explore
