// What an executor has done so far: counters and, if wanted, a timeline. Written by the progress
// thread, read by the caller's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/arrival_timing.hpp"
#include "runtime/executor.hpp"

namespace rackrail::runtime {

class ExecutionLedger {
 public:
  using Clock = std::chrono::steady_clock;

  ExecutionLedger(Rank self, bool keeps_timeline) : self_(self), keeps_timeline_(keeps_timeline) {}

  /// Whether it is worth making a name for record().
  bool keeps_timeline() const { return keeps_timeline_; }

  void count_sent(Rank destination, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const Bytes size(static_cast<std::int64_t>(bytes));
    statistics_.sent += size;
    statistics_.bytes_by_pair[{self_, destination}] += size;
    ++statistics_.messages;
  }

  void count_arrived(Rank source, std::size_t bytes, std::chrono::nanoseconds sent) {
    const std::chrono::nanoseconds now = Clock::now().time_since_epoch();
    const std::lock_guard lock(mutex_);
    ArrivedTraffic& traffic = statistics_.arrived[source];
    traffic.bytes += Bytes(static_cast<std::int64_t>(bytes));
    traffic.busy += timings_[source].arrived(sent, now);
  }

  void add_time(Duration ExecutorStatistics::*total, Clock::time_point started) {
    const Duration time = between(started, Clock::now());
    const std::lock_guard lock(mutex_);
    statistics_.*total += time;
  }

  void note_buffered(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    statistics_.peak_buffered_bytes = std::max(statistics_.peak_buffered_bytes, bytes);
  }

  void record(std::string what, const char* track, Clock::time_point started) {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(mutex_);
    timeline_.push_back({std::move(what), "rank " + std::to_string(self_.value()) + " " + track,
                         between(origin_, started), between(origin_, now)});
  }

  ExecutorStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

  std::vector<plan::TimelineEvent> take_timeline() {
    const std::lock_guard lock(mutex_);
    return std::exchange(timeline_, {});
  }

 private:
  static Duration between(Clock::time_point from, Clock::time_point to) {
    return Duration(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count() * 1000);
  }

  const Rank self_;
  const bool keeps_timeline_;
  const Clock::time_point origin_ = Clock::now();
  mutable std::mutex mutex_;
  ExecutorStatistics statistics_;
  std::map<Rank, ArrivalTiming> timings_;  ///< by source
  std::vector<plan::TimelineEvent> timeline_;
};

}  // namespace rackrail::runtime
