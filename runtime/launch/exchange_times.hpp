// What an executor's thread did in each step, for the medians of a worker's report.
#pragma once

#include <optional>
#include <vector>

#include "base/units.hpp"
#include "runtime/launch/report.hpp"
#include "runtime/plan_executor.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::runtime {

/// Used by the training thread alone. A step's times are those between two looks at the statistics,
/// so what is done between two steps counts as part of the later one. 24 bytes a step.
class ExchangeTimes {
 public:
  /// An executor begins, whose statistics are those of no step.
  void begin() { before_.reset(); }

  void step_done(const ExecutorStatistics& now) {
    if (before_) {
      encode_.push_back(now.encode_time - before_->encode_time);
      decode_.push_back(now.decode_time - before_->decode_time);
      progress_cpu_.push_back(now.progress_cpu_time - before_->progress_cpu_time);
    }
    before_ = now;
  }

  /// Leaves the report as it is where there were less than two steps with one executor.
  void put_medians(WorkerReport& report) const {
    if (!encode_.empty()) {
      report.encode_step_time = trainer::median(encode_);
      report.decode_step_time = trainer::median(decode_);
      report.progress_cpu_time = trainer::median(progress_cpu_);
    }
  }

 private:
  std::optional<ExecutorStatistics> before_;
  std::vector<Duration> encode_;
  std::vector<Duration> decode_;
  std::vector<Duration> progress_cpu_;
};

}  // namespace rackrail::runtime
