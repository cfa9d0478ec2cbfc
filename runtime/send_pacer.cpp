#include "runtime/send_pacer.hpp"

#include <functional>

namespace rackrail::runtime {

std::uint32_t SendPacer::lane(Rank destination, std::span<const LinkId> links) {
  const auto [it, added] = numbers_.try_emplace({destination, {links.begin(), links.end()}},
                                                static_cast<std::uint32_t>(lanes_.size()));
  if (added) {
    lanes_.push_back({.destination = destination, .next = {}});
  }
  return it->second;
}

void SendPacer::charge(std::uint32_t lane, std::size_t bytes, Bandwidth rate,
                       Clock::time_point now) {
  const auto taken = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
      static_cast<double>(bytes) / static_cast<double>(rate.bytes_per_second())));
  Clock::time_point& next = lanes_[lane].next;
  next = plan::next_departure(next, now, taken, kCatchUp);
}

void SendPacer::wait(std::uint32_t lane) {
  if (!std::exchange(lanes_[lane].is_waiting, true)) {
    waiting_.emplace(lanes_[lane].next, lane);
  }
}

std::vector<Rank> SendPacer::take_due(Clock::time_point now) {
  std::vector<Rank> due;
  while (!waiting_.empty() && waiting_.top().first <= now) {
    Lane& lane = lanes_[waiting_.top().second];
    waiting_.pop();
    lane.is_waiting = false;
    due.push_back(lane.destination);
  }
  return due;
}

std::optional<SendPacer::Clock::time_point> SendPacer::next_due() const {
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.top().first);
}

}  // namespace rackrail::runtime
