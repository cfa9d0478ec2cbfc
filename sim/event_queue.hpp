// Events in the order of their times, ties in the order of their creation: the source of
// determinism.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

namespace rackrail::sim {

/// Time in picoseconds since the start of the simulation.
using Time = std::int64_t;

/// What an event is for is the business of whoever put it in: `kind` and two numbers.
struct Event {
  Time time = 0;
  std::uint64_t order = 0;
  std::uint32_t kind = 0;
  std::uint32_t a = 0;
  std::uint64_t b = 0;
};

class EventQueue {
 public:
  void push(Time time, std::uint32_t kind, std::uint32_t a, std::uint64_t b) {
    events_.push(Event{time, created_++, kind, a, b});
  }
  bool empty() const { return events_.empty(); }
  const Event& top() const { return events_.top(); }
  Event pop() {
    Event event = events_.top();
    events_.pop();
    ++handled_;
    return event;
  }
  std::uint64_t handled() const { return handled_; }

 private:
  struct Later {
    bool operator()(const Event& x, const Event& y) const {
      return x.time != y.time ? x.time > y.time : x.order > y.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t created_ = 0;
  std::uint64_t handled_ = 0;
};

}  // namespace rackrail::sim
