// Paces transfers over routes that have a rate (rule 8 of plan/transfer_graph.hpp).
//
// A Lane is the send queue to one rank over the same links. Each has a time before which it may not
// send. Every slice moves that time on, as plan/send_pace.hpp says.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/send_pace.hpp"

namespace rackrail::runtime {

class SendPacer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kCatchUp =
      std::chrono::nanoseconds(plan::kCatchUp.picoseconds() / 1000);

  /// The number of a send queue; the same for the same links to the same rank.
  std::uint32_t lane(Rank destination, std::span<const LinkId> links);

  bool may_send(std::uint32_t lane, Clock::time_point now) const {
    return lanes_[lane].next <= now;
  }
  /// A slice leaves; `rate` is positive.
  void charge(std::uint32_t lane, std::size_t bytes, Bandwidth rate, Clock::time_point now);

  /// The queue has something to send that may not leave yet.
  void wait(std::uint32_t lane);
  /// Destinations of the queues that have waited and may send now; each queue once.
  std::vector<Rank> take_due(Clock::time_point now);
  /// When the first of those that wait may send.
  std::optional<Clock::time_point> next_due() const;

 private:
  struct Lane {
    Rank destination;
    Clock::time_point next;
    bool is_waiting = false;
  };
  using Due = std::pair<Clock::time_point, std::uint32_t>;

  std::map<std::pair<Rank, std::vector<LinkId>>, std::uint32_t> numbers_;
  std::vector<Lane> lanes_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> waiting_;
};

}  // namespace rackrail::runtime
