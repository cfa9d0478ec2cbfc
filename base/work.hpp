// Work that was done, counted instead of timed.
//
// A search that ends after so much work gives the same answer on every machine; one that ends after
// so much time does not. What takes long counts what it does: a simulated event, a flow whose rate
// is looked for, a transfer that is added to a graph, a move that is put in order. Each is a few
// tenths of a microsecond on a usual core. Counts are of the thread: a search runs in one.
#pragma once

#include <cstdint>

namespace rackrail {

class Work {
 public:
  static std::int64_t done() { return done_; }
  static void add(std::uint64_t steps) { done_ += static_cast<std::int64_t>(steps); }

 private:
  static inline thread_local std::int64_t done_ = 0;
};

}  // namespace rackrail
