// Holds what leaves over routes with a rate to it (rule 8 of plan/transfer_graph.hpp).
//
// Each lane, what goes to one rank over the same links, has a time from when on it may send, which
// a slice moves on as plan/send_pace.hpp says.
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

  /// The number of a lane; the same for the same links to the same rank.
  std::uint32_t lane(Rank destination, std::span<const LinkId> links);

  bool may_send(std::uint32_t lane, Clock::time_point now) const {
    return lanes_[lane].next <= now;
  }
  /// A slice leaves; `rate` is positive.
  void charge(std::uint32_t lane, std::size_t bytes, Bandwidth rate, Clock::time_point now);

  /// The lane has something to send that may not leave yet.
  void wait(std::uint32_t lane);
  /// Destinations of lanes that have waited and may send now, each lane once.
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
