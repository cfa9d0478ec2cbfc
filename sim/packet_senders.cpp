// Messages, senders and receivers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "sim/packet_network.hpp"

namespace rackrail::sim {

namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kLongestTime = 9.0e18;

Time time_for(std::int64_t bytes, double bytes_per_picosecond, Time now) {
  const double time = std::ceil(static_cast<double>(bytes) / bytes_per_picosecond);
  if (!(time < kLongestTime - static_cast<double>(now))) {
    throw SimulationError("a flow would end after more than 106 days of simulated time");
  }
  return static_cast<Time>(time);
}

/// The rate at which a machine can send: of its links, the narrowest up to the first that leaves.
double line_rate(const topology::Topology& topology, std::span<const LinkId> route) {
  const std::string& host = topology.node(topology.link(route.front()).from).host;
  double least = std::numeric_limits<double>::infinity();
  for (const LinkId id : route) {
    const topology::Link& link = topology.link(id);
    least = std::min(least, static_cast<double>(link.bandwidth.bytes_per_second()));
    if (host.empty() || topology.node(link.to).host != host) {
      break;
    }
  }
  return least / kPicosecondsPerSecond;
}

}  // namespace

void PacketNetwork::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                          double rate_cap, FlowTag tag) {
  advance(now - 1);  // what was still on its way when the last flow ended
  ++started_;
  ++under_way_;
  const std::uint32_t number = messages_.take();
  Message& message = messages_[number];
  message = {
      .tag = tag, .unsent = bytes, .undelivered = bytes, .cap = rate_cap / kPicosecondsPerSecond};
  if (bytes == 0 || links.empty()) {
    for (const LinkId link : links) {
      message.latency += ports_[link.index()].latency;
    }
    queue_.push(now, message.cap > 0 ? time_for(bytes, message.cap, now) : 0, What::kNothingLeft,
                number);
    return;
  }
  message.sender = sender_for(links);
  Sender& sender = senders_[message.sender];
  sender.message = number;
  if (sender.turn > now) {
    queue_.push(now, sender.turn - now, What::kTurn, message.sender);
    return;
  }
  get_in_line(message.sender);
  transmit(now, sender.route.front().value());
}

std::uint32_t PacketNetwork::sender_for(std::span<const LinkId> links) {
  std::vector<LinkId> route(links.begin(), links.end());
  LinkedQueue<Sender>& idle = idle_[route];
  if (!idle.empty()) {
    return idle.pop(senders_);
  }
  Time latency = 0;
  for (const LinkId link : links) {
    latency += ports_[link.index()].latency;
  }
  const double line = line_rate(topology_, links);
  senders_.emplace_back(std::move(route), options_.dcqcn, line, latency);
  return static_cast<std::uint32_t>(senders_.size() - 1);
}

void PacketNetwork::get_in_line(std::uint32_t sender) {
  ports_[senders_[sender].route.front().index()].senders.push(senders_, sender);
}

// Cuts the next packet off the message whose turn it is at a free link, and gives its sender the
// time of the packet after it.
std::uint32_t PacketNetwork::next_packet(Time now, std::uint32_t port_number) {
  Port& port = ports_[port_number];
  const std::uint32_t sender_number = port.senders.pop(senders_);
  Sender& sender = senders_[sender_number];
  Message& message = messages_[sender.message];
  const std::int64_t payload = std::min(message.unsent, options_.payload.count());
  const std::int64_t size = payload + options_.header.count();
  message.unsent -= payload;

  const bool has_control = options_.rate_control == RateControl::kDcqcn;
  Time interval = time_for(size, has_control ? sender.control.rate(now) : sender.line, now);
  if (message.cap > 0) {
    interval = std::max(interval, time_for(payload, message.cap, now));
  }
  sender.control.sent(size);
  sender.turn = std::max(sender.turn + interval, now);

  const std::uint32_t number = packets_.take();
  packets_[number] = {.message = sender.message,
                      .payload = static_cast<std::int32_t>(payload),
                      .size = static_cast<std::int32_t>(size),
                      .is_last = message.unsent == 0};
  if (message.unsent > 0) {
    // Who would be ready before the link is free again is ready now, for the order of turns.
    if (sender.turn <= now + transmission_time(port, size)) {
      get_in_line(sender_number);
    } else {
      queue_.push(now, sender.turn - now, What::kTurn, sender_number);
    }
  }
  return number;
}

void PacketNetwork::message_left(std::uint32_t number) {
  const std::uint32_t sender_number = messages_[number].sender;
  Sender& sender = senders_[sender_number];
  events_.push_back({messages_[number].tag, false});
  sender.message = kNothing;
  idle_[sender.route].push(senders_, sender_number);
}

void PacketNetwork::deliver(Time now, std::uint32_t number) {
  const Packet packet = packets_[number];
  packets_.give_back(number);
  Message& message = messages_[packet.message];
  Sender& sender = senders_[message.sender];
  if (packet.is_marked && now >= sender.notify_from &&
      options_.rate_control == RateControl::kDcqcn) {
    sender.notify_from = now + options_.dcqcn.notification_interval.picoseconds();
    queue_.push(now, sender.back, What::kNotify, message.sender);
  }
  message.undelivered -= packet.payload;
  if (message.undelivered == 0) {
    finish_message(packet.message);
  }
}

void PacketNetwork::finish_message(std::uint32_t number) {
  events_.push_back({messages_[number].tag, true});
  messages_.give_back(number);
  --under_way_;
}

}  // namespace rackrail::sim
