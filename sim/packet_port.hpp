// What the packet level keeps of packets, senders and links; for sim/packet_*.cpp only.
//
// Packets are numbers into one pool; a queue is a list threaded through it. So nothing is allocated
// per packet once the pool has grown to what is under way at the same time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "sim/rate_control.hpp"
#include "sim/time.hpp"

namespace rackrail::sim {

inline constexpr std::uint32_t kNothing = UINT32_MAX;

struct Packet {
  std::uint32_t message = 0;
  std::uint32_t next = kNothing;  ///< in its queue, or of the free ones
  std::int32_t payload = 0;       ///< bytes
  std::int32_t size = 0;          ///< bytes with the header
  std::uint16_t hop = 0;          ///< of the link that it waits for or is on
  bool is_last = false;           ///< of its message
  bool is_marked = false;
};

/// Entries of a pool in a line; `Entry` has a member `next`.
template <typename Entry>
class LinkedQueue {
 public:
  bool empty() const { return first_ == kNothing; }
  std::uint32_t front() const { return first_; }
  void push(std::vector<Entry>& pool, std::uint32_t number) {
    pool[number].next = kNothing;
    (first_ == kNothing ? first_ : pool[last_].next) = number;
    last_ = number;
  }
  std::uint32_t pop(const std::vector<Entry>& pool) {
    const std::uint32_t number = first_;
    first_ = pool[number].next;
    return number;
  }

 private:
  std::uint32_t first_ = kNothing;
  std::uint32_t last_ = kNothing;
};

/// Entries by number; those given back are used again first.
template <typename Entry>
class Pool {
 public:
  std::uint32_t take() {
    if (free_.empty()) {
      entries_.emplace_back();
      return static_cast<std::uint32_t>(entries_.size() - 1);
    }
    return free_.pop(entries_);
  }
  void give_back(std::uint32_t number) { free_.push(entries_, number); }
  Entry& operator[](std::uint32_t number) { return entries_[number]; }
  const Entry& operator[](std::uint32_t number) const { return entries_[number]; }
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  LinkedQueue<Entry> free_;
};

/// Of one message at a time on one route.
struct Sender {
  Sender(std::vector<LinkId> links, const DcqcnOptions& options, double line_rate, Time latency)
      : route(std::move(links)), control(options, line_rate), line(line_rate), back(latency) {}

  std::vector<LinkId> route;
  DcqcnRate control;
  double line;  ///< bytes per picosecond
  Time back;    ///< latency of a notification
  std::uint32_t next = kNothing;
  std::uint32_t message = kNothing;
  Time turn = 0;                 ///< of the next packet
  Time notify_from = INT64_MIN;  ///< the receiver stays silent until then
};

/// A link, with the queue in front of it and what its far end has of it.
struct Port {
  std::int64_t bytes_per_second = 0;
  Time latency = 0;
  Time full_packet_time = 0;
  std::int64_t mark_from = 0;  ///< thresholds in bytes, see PacketOptions
  std::int64_t mark_all = 0;
  std::int64_t pause_above = 0;
  std::int64_t resume_below = 0;

  LinkedQueue<Packet> queue;         ///< packets from other links
  LinkedQueue<Sender> senders;       ///< that start here and may send now
  std::uint32_t current = kNothing;  ///< the packet that is being sent
  std::int64_t queued = 0;           ///< bytes in the queue, with the one being sent
  std::int64_t arrived = 0;          ///< bytes at the far end that came from here and wait there
  bool is_paused = false;
  bool has_paused = false;  ///< the far end has asked for a pause
  bool queue_is_next = false;

  std::int64_t most_queued = 0;
  std::uint64_t marks = 0;
  std::uint64_t pauses = 0;
};

}  // namespace rackrail::sim
