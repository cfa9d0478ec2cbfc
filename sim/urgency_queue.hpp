// What waits for a device's stream: the most urgent first, and of equally urgent ones the first
// that came.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "sim/ring_buffer.hpp"

namespace rackrail::sim {

/// When transfers of a collective go, where those of several compete: a smaller number first.
/// Those of an earlier step come before all of later ones, in a step the buckets' priorities count
/// (plan::Bucket::priority).
using Urgency = std::uint64_t;

constexpr Urgency urgency_of(std::uint32_t step, std::uint32_t priority) {
  return (Urgency{step} << 32U) | priority;
}

/// A queue for each urgency that something waits with: few, so that what is urgent is found by a
/// look at some of them, and with one alone this is a plain queue.
template <typename T>
class UrgencyQueue {
 public:
  bool empty() const { return classes_.empty() || classes_.front().waiting.empty(); }
  const T& front() const { return classes_.front().waiting.front(); }
  /// A new element, behind those that are as urgent, to be written to in place; it holds what the
  /// slot held before.
  T& push(Urgency urgency) {
    if (!classes_.empty() && empty()) {
      classes_.front().urgency = urgency;
    }
    auto at = classes_.end();
    while (at != classes_.begin() && std::prev(at)->urgency > urgency) {
      --at;
    }
    if (at != classes_.begin() && std::prev(at)->urgency == urgency) {
      --at;
    } else {
      at = classes_.insert(at, Class{urgency, {}});
    }
    return at->waiting.push_back();
  }
  void pop_front() {
    classes_.front().waiting.pop_front();
    if (classes_.front().waiting.empty() && classes_.size() > 1) {
      classes_.erase(classes_.begin());
    }
  }

 private:
  struct Class {
    Urgency urgency = 0;
    RingBuffer<T> waiting;
  };
  /// The most urgent first. None is empty, unless it is the only one.
  std::vector<Class> classes_;
};

}  // namespace rackrail::sim
