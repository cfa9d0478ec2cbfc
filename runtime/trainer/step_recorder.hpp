// Where the time of a step goes, and the timeline of the one step that it is wanted of.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::trainer {

/// Used by the training thread alone.
class StepRecorder {
 public:
  explicit StepRecorder(Rank self) : rank_("rank " + std::to_string(self.value())) {}

  /// A step begins now. `is_wanted`: whether its timeline is kept.
  Duration begin(bool is_wanted) {
    keeps_ = is_wanted;
    launches_.clear();
    return begin_ = wall_clock();
  }
  /// Since then.
  Duration elapsed() const { return wall_clock() - begin_; }

  void add(std::string what, const char* track, Duration begin, Duration end) {
    if (keeps_) {
      timeline_.push_back({std::move(what), rank_ + " " + track, begin - begin_, end - begin_});
    }
  }
  void launched(BucketId bucket) {
    if (keeps_) {
      launches_.emplace_back(bucket, wall_clock());
    }
  }

  /// Time in which this rank computes the update.
  template <typename Work>
  void optimise(StepTimes& times, const Work& work) {
    const Duration begin = wall_clock();
    const Duration cpu_begin = thread_cpu_clock();
    work();
    const Duration end = wall_clock();
    add("optimizer", "compute", begin, end);
    times.optimizer += end - begin;
    times.compute_cpu += thread_cpu_clock() - cpu_begin;
  }
  /// Time in which this rank waits for the others, until which buckets are under way.
  template <typename Work>
  void synchronise(StepTimes& times, const Work& work) {
    const Duration begin = wall_clock();
    work();
    const Duration end = wall_clock();
    add("wait", "compute", begin, end);
    for (const auto& [bucket, launched] : launches_) {
      add("bucket " + std::to_string(bucket.value()), "buckets", launched, end);
    }
    times.synchronise += end - begin;
  }

  void clear() { timeline_.clear(); }
  std::vector<plan::TimelineEvent> take_timeline() { return std::exchange(timeline_, {}); }

 private:
  const std::string rank_;
  Duration begin_;
  bool keeps_ = false;
  std::vector<plan::TimelineEvent> timeline_;
  std::vector<std::pair<BucketId, Duration>> launches_;
};

}  // namespace rackrail::trainer
