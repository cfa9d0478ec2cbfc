#include "runtime/trainer/statistics.hpp"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace rackrail::trainer {
namespace {

Duration read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return Duration(now.tv_sec * 1'000'000'000'000) + Duration(now.tv_nsec * 1'000);
}

template <typename Value>
Value middle(std::vector<Value> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

template <typename Of>
Duration median_of(const std::vector<StepTimes>& steps, const Of& of) {
  std::vector<Duration> values(steps.size());
  std::ranges::transform(steps, values.begin(), of);
  return middle(std::move(values));
}

}  // namespace

StepSummary summarise(const std::vector<StepTimes>& steps) {
  StepSummary summary;
  if (steps.empty()) {
    return summary;
  }
  summary.steps = static_cast<std::int64_t>(steps.size());
  summary.step_time = median_of(steps, [](const StepTimes& t) { return t.step; });
  summary.compute_time = median_of(steps, [](const StepTimes& t) { return t.compute(); });
  summary.compute_cpu_time = median_of(steps, [](const StepTimes& t) { return t.compute_cpu; });
  summary.process_cpu_time = median_of(steps, [](const StepTimes& t) { return t.process_cpu; });
  summary.sync_time = median_of(steps, [](const StepTimes& t) { return t.synchronise; });
  summary.input_wait = median_of(steps, [](const StepTimes& t) { return t.input_wait; });
  std::vector<double> shares(steps.size());
  std::ranges::transform(steps, shares.begin(), [](const StepTimes& t) {
    return t.step > Duration() ? t.synchronise / t.step : 0.0;
  });
  summary.sync_share = middle(std::move(shares));
  Duration total;
  Duration synchronising;
  for (const StepTimes& times : steps) {
    total += times.step;
    synchronising += times.synchronise;
  }
  summary.mean_step_time = Duration(total.picoseconds() / summary.steps);
  summary.overall_sync_share = total > Duration() ? synchronising / total : 0.0;
  return summary;
}

Duration median(std::vector<Duration> values) { return middle(std::move(values)); }

Duration time_of_each(std::span<const Duration> times) {
  constexpr std::size_t kStretches = 8;
  const std::size_t length = std::max<std::size_t>(times.size() / kStretches / 2, 1) * 2;
  std::vector<double> means;
  for (; times.size() >= length; times = times.subspan(length)) {
    double seconds = 0;
    for (const Duration time : times.first(length)) {
      seconds += time.seconds();
    }
    means.push_back(seconds / static_cast<double>(length));
  }
  std::ranges::sort(means);
  return Duration::from_seconds((means[(means.size() - 1) / 2] + means[means.size() / 2]) / 2);
}

Duration wall_clock() { return read_clock(CLOCK_MONOTONIC); }

Duration thread_cpu_clock() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

Duration process_cpu_clock() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace rackrail::trainer
