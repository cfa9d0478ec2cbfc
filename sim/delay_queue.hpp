// Events in the order of their times, ties in the order of their creation: the source of
// determinism.
//
// Simulations repeat few durations very often: one message overhead, a handful of route latencies,
// equal chunks at equal rates. Events that are put in as time goes on, each a fixed delay ahead,
// come out in the order in which they went in. So each delay in use has a line of its own, first
// in, first out, and only the heads of lines are in a heap. What finds no line free goes into a
// second heap. An event thereby costs O(log lines) instead of O(log events), and touches memory in
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/quad_heap.hpp"
#include "sim/ring_buffer.hpp"
#include "sim/time.hpp"

namespace rackrail::sim {

/// `Payload` says what an event is for; a small copyable type.
template <typename Payload>
class DelayQueue {
 public:
  DelayQueue() : lines_(kLines) {}

  /// An event at `now + delay`, its payload given by its fields or as a whole. `now` must not be
  /// less than in any call before; `delay` is not negative.
  template <typename... Fields>
  void push(Time now, Time delay, const Fields&... payload) {
    const Time time = now + delay;
    const std::uint32_t order = created_++;
    const std::uint32_t number = line_for(delay);
    Line& line = lines_[number];
    if (line.delay != delay) {
      if (!line.events.empty()) {
        others_.push({time, order, Payload{payload...}});
        return;
      }
      line.delay = delay;
    }
    if (line.events.empty()) {
      heads_.push({time, order, number});
    }
    // Field by field: a struct just made of its fields is slow to copy as a whole, as the processor
    // has to wait for them to reach the cache.
    Event& event = line.events.push_back();
    event.time = time;
    event.order = order;
    event.payload = Payload{payload...};
  }
  bool empty() const { return heads_.empty() && others_.empty(); }
  /// Of the earliest event; there must be one.
  Time next_time() const { return next_is_in_line() ? heads_.top().time : others_.top().time; }
  const Payload& next() const {
    return next_is_in_line() ? lines_[heads_.top().line].events.front().payload
                             : others_.top().payload;
  }
  Payload pop() {
    if (!next_is_in_line()) {
      const Payload payload = others_.top().payload;
      others_.pop();
      return payload;
    }
    const std::uint32_t number = heads_.top().line;
    RingBuffer<Event>& events = lines_[number].events;
    const Payload payload = events.front().payload;
    events.pop_front();
    if (events.empty()) {
      heads_.pop();
    } else {
      heads_.update(0, {events.front().time, events.front().order, number});
    }
    return payload;
  }

 private:
  static constexpr unsigned kLineBits = 8;
  static constexpr std::size_t kLines = std::size_t{1} << kLineBits;

  // Numbers may wrap around: those of events that wait at once are near each other.
  static bool is_before(std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int32_t>(a - b) < 0;
  }
  struct Event {
    Time time = 0;
    std::uint32_t order = 0;
    Payload payload{};
    bool operator<(const Event& o) const {
      return time != o.time ? time < o.time : is_before(order, o.order);
    }
  };
  struct Head {
    Time time = 0;
    std::uint32_t order = 0;
    std::uint32_t line = 0;
    bool operator<(const Head& o) const {
      return time != o.time ? time < o.time : is_before(order, o.order);
    }
  };
  struct Line {
    Time delay = -1;
    RingBuffer<Event> events;
  };

  // Fibonacci hashing: neighbouring delays go to different lines.
  static std::uint32_t line_for(Time delay) {
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(delay) * kGolden) >>
                                      (64U - kLineBits));
  }
  bool next_is_in_line() const {
    if (heads_.empty() || others_.empty()) {
      return others_.empty();
    }
    const Head& head = heads_.top();
    const Event& other = others_.top();
    return head.time != other.time ? head.time < other.time : is_before(head.order, other.order);
  }

  std::vector<Line> lines_;
  QuadHeap<Head> heads_;
  QuadHeap<Event> others_;
  std::uint32_t created_ = 0;
};

}  // namespace rackrail::sim
