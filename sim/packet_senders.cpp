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

Time whole_time(double time, Time now) {
  time = std::ceil(time);
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
    queue_.push(now,
                message.cap > 0 ? whole_time(static_cast<double>(bytes) / message.cap, now) : 0,
                What::kNothingLeft, number);
    return;
  }
  message.sender = sender_for(links);
  Sender& sender = senders_[message.sender];
  message.last_payload = static_cast<std::int32_t>(bytes % options_.payload.count());
  sender.message = number;
  ++sender.open;
  wake(now, message.sender);
}

std::uint32_t PacketNetwork::sender_for(std::span<const LinkId> links) {
  std::vector<LinkId> route(links.begin(), links.end());
  std::vector<std::uint32_t>& idle = idle_[route];
  if (!idle.empty()) {
    const std::uint32_t sender = idle.back();
    idle.pop_back();
    return sender;
  }
  Time latency = 0;
  for (const LinkId link : links) {
    latency += ports_[link.index()].latency;
  }
  const double stretch = std::max(1.0, 2 * static_cast<double>(latency) /
                                           static_cast<double>(options_.round_trip.picoseconds()));
  for (const LinkId link : links) {
    Port& port = ports_[link.index()];
    if (stretch > port.stretch) {
      set_thresholds(port, stretch);
    }
  }
  const double line = line_rate(topology_, links);
  senders_.emplace_back(std::move(route), options_.dcqcn, line, latency, stretch);
  senders_.back().credits = options_.trim.window;
  return static_cast<std::uint32_t>(senders_.size() - 1);
}

void PacketNetwork::get_in_line(std::uint32_t sender) {
  ports_[senders_[sender].route.front().index()].senders.push(senders_, sender);
}

bool PacketNetwork::has_work(const Sender& sender) const {
  const bool may_send = options_.overload == Overload::kPause || sender.credits > 0;
  return may_send && (!sender.again.empty() ||
                      (sender.message != kNothing && messages_[sender.message].unsent > 0));
}

// Puts a sender in line that has something to send, unless it is up already.
void PacketNetwork::wake(Time now, std::uint32_t number) {
  Sender& sender = senders_[number];
  if (sender.is_up || !has_work(sender)) {
    return;
  }
  sender.is_up = true;
  if (sender.turn > now) {
    queue_.push(now, sender.turn - now, What::kTurn, number);
    return;
  }
  get_in_line(number);
  transmit(now, sender.route.front().value());
}

// Bytes of the next packet of a sender: one that is to be sent again, else the next of its message.
std::int64_t PacketNetwork::take_payload(Sender& sender, std::uint32_t* number) {
  --sender.credits;
  if (sender.again.empty()) {
    *number = sender.message;
    Message& message = messages_[sender.message];
    const std::int64_t payload = std::min(message.unsent, options_.payload.count());
    message.unsent -= payload;
    return payload;
  }
  *number = sender.again.front();
  Message& message = messages_[*number];
  std::int64_t payload = options_.payload.count();
  if (message.full_again > 0) {
    --message.full_again;
  } else {
    message.is_last_again = false;
    payload = message.last_payload;
  }
  if (message.full_again == 0 && !message.is_last_again) {
    sender.again.pop(messages_.entries());
  }
  return payload;
}

// The next packet of the sender whose turn it is at a free link; gives the sender the time of the
// packet after it.
std::uint32_t PacketNetwork::next_packet(Time now, std::uint32_t port_number) {
  Port& port = ports_[port_number];
  Sender& sender = senders_[port.senders.pop(senders_)];
  std::uint32_t message = kNothing;
  const std::int64_t payload = take_payload(sender, &message);
  const std::int64_t size = payload + options_.header.count();

  double interval = static_cast<double>(size) / sender.line;
  if (options_.rate_control == RateControl::kDcqcn && options_.overload == Overload::kPause) {
    sender.control.rate(now);
    sender.control.sent(size);
    interval = sender.control.time_for(size, now);
  }
  if (messages_[message].cap > 0) {
    interval = std::max(interval, static_cast<double>(payload) / messages_[message].cap);
  }
  sender.turn = std::max(sender.turn + whole_time(interval, now), now);

  const std::uint32_t number = packets_.take();
  packets_[number] = {.message = message,
                      .payload = static_cast<std::int32_t>(payload),
                      .size = static_cast<std::int32_t>(size)};
  return number;
}

// A sender's packet has left: it waits for its next turn, and its message may have left with it.
void PacketNetwork::packet_left(Time now, std::uint32_t number) {
  const std::uint32_t sender_number = messages_[number].sender;
  Sender& sender = senders_[sender_number];
  sender.is_up = false;
  if (sender.message == number && messages_[number].unsent == 0) {
    events_.push_back({messages_[number].tag, false});
    sender.message = kNothing;
    idle_[sender.route].push_back(sender_number);
  }
  wake(now, sender_number);
}

void PacketNetwork::deliver(Time now, std::uint32_t number) {
  const Packet packet = packets_[number];
  const std::uint32_t sender_number = messages_[packet.message].sender;
  Sender& sender = senders_[sender_number];
  if (packet.is_trimmed) {
    queue_.push(now, sender.back, What::kRefusal, number);
    ask_for_more(now, sender_number);
    return;
  }
  packets_.give_back(number);
  if (packet.is_marked && now >= sender.notify_from &&
      options_.rate_control == RateControl::kDcqcn) {
    sender.notify_from = now + sender.notification_interval;
    queue_.push(now, sender.back, What::kNotify, sender_number);
  }
  Message& message = messages_[packet.message];
  message.undelivered -= packet.payload;
  if (message.undelivered == 0) {
    --sender.open;
    finish_message(packet.message);
  }
  if (options_.overload == Overload::kTrim) {
    ask_for_more(now, sender_number);
  }
}

void PacketNetwork::finish_message(std::uint32_t number) {
  events_.push_back({messages_[number].tag, true});
  messages_.give_back(number);
  --under_way_;
}

}  // namespace rackrail::sim
