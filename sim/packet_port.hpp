// What the packet level keeps of packets, senders and links; for sim/packet_*.cpp only.
//
// Packets are numbers into one pool; a queue is a list threaded through it. So nothing is allocated
// per packet once the pool has grown to what is under way at the same time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "sim/network_model.hpp"
#include "sim/packet_ways.hpp"
#include "sim/rate_control.hpp"
#include "sim/ring_buffer.hpp"
#include "sim/time.hpp"

namespace rackrail::sim {

inline constexpr std::uint32_t kNothing = UINT32_MAX;
inline constexpr Time kNever = INT64_MAX;

struct Packet {
  std::uint32_t message = 0;
  std::uint32_t next = kNothing;  ///< in its queue, or of the free ones
  std::uint32_t from = kNothing;  ///< the link that brought it to where it is; none at its sender
  std::int32_t payload = 0;       ///< bytes
  std::int32_t size = 0;          ///< bytes with the header
  Hop hop = 0;                    ///< of the link that it waits for or is on
  std::uint32_t marked_by = kNothing;  ///< the last link whose queue marked it
  bool is_trimmed = false;
};

/// What one sender has of a flow.
struct Message {
  std::uint32_t next = kNothing;  ///< of the free ones, or of those with packets to send again
  std::uint32_t sender = kNothing;
  std::uint32_t flow = kNothing;
  std::uint32_t sibling = kNothing;  ///< another one of the flow
  std::int64_t unsent = 0;           ///< bytes
  double cap = 0;                    ///< bytes per picosecond; 0 for none
  std::int32_t last_payload = 0;     ///< bytes of the last packet, where that is a shorter one
  std::uint32_t full_again = 0;      ///< full packets to send again
  bool is_last_again = false;        ///< whether the shorter one is to be sent again
};

struct Flow {
  std::uint32_t next = kNothing;     ///< of the free ones
  std::uint32_t ways = kNothing;     ///< none: without packets
  std::uint32_t message = kNothing;  ///< the first, by Message::sibling
  std::uint32_t unsent = 0;          ///< messages that are not all sent
  FlowTag tag = 0;
  std::int64_t undelivered = 0;  ///< bytes, at all receivers together
  Time latency = 0;              ///< of one without packets
  /// Where packets become one: those that came, by hop, and who marked one that waits.
  std::vector<std::uint32_t> came;
  std::uint32_t marked_by = kNothing;
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

/// Sends one message at a time, from one of the first links of its flows' paths.
struct Sender {
  Sender(std::uint32_t its_ways, std::size_t beginning, std::uint32_t link,
         const DcqcnOptions& options, double line_rate, Time latency, double stretch)
      : ways(its_ways),
        begins(beginning),
        port(link),
        control(options, line_rate, stretch),
        line(line_rate),
        back(latency),
        notification_interval(static_cast<Time>(
            static_cast<double>(options.notification_interval.picoseconds()) * stretch)) {}

  std::uint32_t ways;
  std::size_t begins;  ///< number in PacketWays::first()
  std::uint32_t port;  ///< that link
  DcqcnRate control;
  double line;  ///< bytes per picosecond
  Time back;    ///< latency of a notification
  Time notification_interval;
  std::uint32_t next = kNothing;
  std::uint32_t message = kNothing;
  LinkedQueue<Message> again;    ///< messages with packets to send again
  std::int64_t credits = 0;      ///< packets that it may send, when packets are trimmed
  std::uint32_t open = 0;        ///< messages that are not delivered
  std::int64_t window = 0;       ///< of these, those that it began with
  bool is_up = false;            ///< in line, or it waits for its turn, or its packet is being sent
  Time turn = 0;                 ///< of the next packet
  Time wakes_at = kNever;        ///< of the event with which its turn comes
  bool is_capped = false;        ///< its turn was set by the cap of its message
  Time notify_from = INT64_MIN;  ///< the receiver stays silent until then
  std::uint32_t marked_by = kNothing;  ///< of the last notification
};

/// Paths that flows take, with their senders that have nothing to send.
struct UsedWays {
  PacketWays ways;
  std::vector<std::vector<std::uint32_t>> idle;  ///< by number in PacketWays::first()
};

/// A link, with the queue in front of it and what its far end has of it.
struct Port {
  std::int64_t bytes_per_second = 0;
  std::int64_t paced_for = 0;  ///< the last rate that was not 0
  Time latency = 0;
  Time full_packet_time = 0;
  double stretch = 0;          ///< of the times in PacketOptions, for the longest route
  std::int64_t mark_from = 0;  ///< thresholds in bytes, see PacketOptions
  std::int64_t mark_all = 0;
  std::int64_t pause_above = 0;

  LinkedQueue<Packet> trimmed;       ///< goes before all else
  LinkedQueue<Packet> queue;         ///< packets from other links
  LinkedQueue<Sender> senders;       ///< that start here and may send now
  std::uint32_t current = kNothing;  ///< the packet that is being sent
  double left = 0;                   ///< bytes of it that were not sent at `since`
  Time since = 0;                    ///< the link has its rate and sends the packet
  Time sent_at = kNever;             ///< when all of it is sent, at this rate
  std::int64_t queued = 0;           ///< bytes in the queue, with the one being sent
  std::int64_t arrived = 0;          ///< bytes at the far end that came from here and wait there
  bool is_paused = false;
  bool has_paused = false;  ///< the far end has asked for a pause
  bool queue_is_next = false;

  std::int64_t most_queued = 0;
  std::uint64_t marks = 0;
  std::uint64_t pauses = 0;
  std::uint64_t trims = 0;

  std::size_t last_piece = SIZE_MAX;  ///< of the recorded ones
  RingBuffer<std::uint32_t> pulls;    ///< senders to be asked for a packet, by the far end
  Time pulls_at = kNever;             ///< never: nothing is asked for
};

}  // namespace rackrail::sim
