// Links and queues.
#include "sim/packet_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace rackrail::sim {

namespace {

constexpr std::int64_t kFewestPacketsToMarkAll = 16;

}  // namespace

PacketNetwork::PacketNetwork(const topology::Topology& topology, const PacketOptions& options)
    : topology_(topology), options_(options), ports_(topology.link_count()) {
  require_valid(options_);
  const std::int64_t full_packet = options_.payload.count() + options_.header.count();
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    Port& port = ports_[i];
    const topology::Link& link = topology.link(LinkId(i));
    port.bytes_per_second = link.bandwidth.bytes_per_second();
    port.latency = link.latency.picoseconds();
    port.paced_for = port.bytes_per_second;
    port.full_packet_time = transmission_time(port, full_packet);
    set_thresholds(port, 1);
  }
}

void PacketNetwork::set_thresholds(Port& port, double stretch) {
  const std::int64_t full_packet = options_.payload.count() + options_.header.count();
  const double rate = std::max(
      static_cast<double>(port.bytes_per_second) * stretch,
      static_cast<double>(kFewestPacketsToMarkAll * full_packet) / options_.mark_all.seconds());
  const auto bytes = [&](Duration time) {
    return static_cast<std::int64_t>(rate * time.seconds());
  };
  port.stretch = stretch;
  port.mark_from = bytes(options_.mark_from);
  port.mark_all = bytes(options_.mark_all);
  port.pause_above = bytes(options_.pause_above);
}

void PacketNetwork::set_capacity(Time now, LinkId link, Bandwidth capacity) {
  advance(now - 1);  // so that what has ended by now has ended
  Port& port = ports_[link.index()];
  interrupt(now, link.value());
  port.last_piece = SIZE_MAX;  // what follows has another rate
  dead_links_ -= port.bytes_per_second == 0 ? 1 : 0;
  port.bytes_per_second = capacity.bytes_per_second();
  if (port.bytes_per_second == 0) {
    ++dead_links_;
    return;
  }
  const std::int64_t before = std::exchange(port.paced_for, port.bytes_per_second);
  if (before != port.bytes_per_second) {
    follow_rate(now, link.value(), before);
  }
  resume(now, link.value());
  transmit(now, link.value());
}

// What was sent of a packet until its link changes.
void PacketNetwork::interrupt(Time now, std::uint32_t number) {
  Port& port = ports_[number];
  if (port.current == kNothing) {
    return;
  }
  const double rate = static_cast<double>(port.bytes_per_second) / kPicosecondsPerSecond;
  const double sent = std::min(port.left, rate * static_cast<double>(now - port.since));
  if (pieces_ != nullptr && sent > 0) {
    record_sent(now, number, sent);
  }
  port.left -= sent;
  port.since = now;
  port.sent_at = kNever;
}

void PacketNetwork::resume(Time now, std::uint32_t number) {
  Port& port = ports_[number];
  if (port.current == kNothing) {
    return;
  }
  const double time =
      port.left * kPicosecondsPerSecond / static_cast<double>(port.bytes_per_second);
  port.since = now;
  port.sent_at = now + static_cast<Time>(std::ceil(time));
  queue_.push(now, port.sent_at - now, What::kSent, number);
}

// What was reckoned with a link's rate before is reckoned with that of now.
void PacketNetwork::follow_rate(Time now, std::uint32_t number, std::int64_t before) {
  Port& port = ports_[number];
  port.full_packet_time =
      transmission_time(port, options_.payload.count() + options_.header.count());
  set_thresholds(port, port.stretch);
  const double rate = static_cast<double>(port.bytes_per_second);
  if (port.pulls_at != kNever) {
    port.pulls_at = now + static_cast<Time>(std::ceil(static_cast<double>(port.pulls_at - now) *
                                                      static_cast<double>(before) / rate));
    queue_.push(now, port.pulls_at - now, What::kPull, number);
  }
  for (std::uint32_t i = 0; i < senders_.size(); ++i) {
    Sender& sender = senders_[i];
    if (sender.marked_by == number) {
      sender.control.set_link_rate(now, rate / kPicosecondsPerSecond);
    }
    const PacketWays& ways = ways_[sender.ways].ways;
    const std::span<const LinkId> all = ways.links();
    if (std::find(all.begin(), all.end(), LinkId(number)) == all.end()) {
      continue;
    }
    const std::vector<LinkId> route = ways.one_from(ways.first()[sender.begins]);
    set_line_rate(now, i, line_rate(route));
    const std::int64_t window =
        options_.trim.window.value_or(std::max(sender.window, fitting_window(route)));
    sender.credits += window - std::exchange(sender.window, window);
    wake(now, i);
  }
}

Time PacketNetwork::next_event(Time now) {
  if (!events_.empty()) {
    return now;
  }
  if (under_way_ == 0) {
    return -1;
  }
  if (queue_.empty()) {
    if (dead_links_ > 0) {
      return -1;
    }
    fail_stuck();
  }
  return std::max(now, queue_.next_time());
}

void PacketNetwork::take_events(Time now, std::vector<FlowEvent>& events) {
  advance(now);
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
}

void PacketNetwork::advance(Time until) {
  while (!queue_.empty() && queue_.next_time() <= until) {
    const Time now = queue_.next_time();
    handle(now, queue_.pop());
  }
}

void PacketNetwork::handle(Time now, Event event) {
  switch (event.what) {
    case What::kSent:
      finish_transmission(now, event.subject);
      return;
    case What::kArrival:
      arrive(now, event.subject);
      return;
    case What::kPause:
      ports_[event.subject].is_paused = true;
      return;
    case What::kResume:
      ports_[event.subject].is_paused = false;
      transmit(now, event.subject);
      return;
    case What::kTurn:
      take_turn(now, event.subject);
      return;
    case What::kRefusal:
      refused(now, event.subject);
      return;
    case What::kPull:
      if (ports_[event.subject].pulls_at == now) {
        pull(now, event.subject);
      }
      return;
    case What::kCredit:
      ++senders_[event.subject].credits;
      wake(now, event.subject);
      return;
    case What::kNotify: {
      Sender& sender = senders_[event.subject];
      sender.control.notify(now, static_cast<double>(ports_[sender.marked_by].bytes_per_second) /
                                     kPicosecondsPerSecond);
      return;
    }
    case What::kNothingLeft:
      events_.push_back({flows_[event.subject].tag, false});
      queue_.push(now, flows_[event.subject].latency, What::kDelivery, event.subject);
      return;
    case What::kDelivery:
      finish_flow(event.subject);
      return;
  }
}

// Rounded up, as Bytes / Bandwidth is.
Time PacketNetwork::transmission_time(const Port& port, std::int64_t size) const {
  return (size * kPicosecondsPerSecond + port.bytes_per_second - 1) / port.bytes_per_second;
}

void PacketNetwork::transmit(Time now, std::uint32_t number) {
  Port& port = ports_[number];
  if (port.current != kNothing || port.is_paused || port.bytes_per_second == 0) {
    return;
  }
  if (!port.trimmed.empty()) {
    port.current = port.trimmed.pop(packets_.entries());
  } else if (!port.queue.empty() && (port.queue_is_next || port.senders.empty())) {
    port.current = port.queue.pop(packets_.entries());
    port.queue_is_next = false;
  } else if (!port.senders.empty()) {
    port.current = next_packet(now, number);
    port.queue_is_next = true;
  } else {
    return;
  }
  const std::int64_t size = packets_[port.current].size;
  const bool is_full = size == options_.payload.count() + options_.header.count();
  const Time time = is_full ? port.full_packet_time : transmission_time(port, size);
  if (static_cast<double>(now) + static_cast<double>(time) >= kLongestTime) {
    throw SimulationError("a packet on " + topology_.link_name(LinkId(number)) +
                          " would be sent after more than 104 days of simulated time");
  }
  port.left = static_cast<double>(size);
  port.since = now;
  port.sent_at = now + time;
  queue_.push(now, time, What::kSent, number);
}

void PacketNetwork::finish_transmission(Time now, std::uint32_t number) {
  Port& port = ports_[number];
  if (port.current == kNothing || port.sent_at != now) {
    return;  // the link has changed since this was expected
  }
  const std::uint32_t packet_number = port.current;
  const Packet& packet = packets_[packet_number];
  if (pieces_ != nullptr) {
    record_sent(now, number, port.left);
  }
  if (packet.from != kNothing) {
    port.queued -= packet.is_trimmed ? 0 : packet.size;
    release(now, packet.from, number, packet.size);
  } else {
    packet_left(now, packet.message);
  }
  queue_.push(now, port.latency, What::kArrival, packet_number);
  port.current = kNothing;
  transmit(now, number);
}

// What a link may have in the vertex at its end when it adds to the queue of `to`.
std::int64_t PacketNetwork::allowance(const Port& from, const Port& to) const {
  const auto free = static_cast<double>(options_.queue_capacity.count() - to.queued);
  return std::min(from.pause_above, static_cast<std::int64_t>(free * options_.pause_share));
}

// `size` bytes that came over link `from` have left the queue of link `to`.
void PacketNetwork::release(Time now, std::uint32_t from, std::uint32_t to, std::int64_t size) {
  Port& port = ports_[from];
  if (options_.overload == Overload::kTrim) {
    return;
  }
  port.arrived -= size;
  if (!port.has_paused) {
    return;
  }
  const auto allowed = static_cast<double>(allowance(port, ports_[to]));
  if (port.arrived == 0 || static_cast<double>(port.arrived) < allowed * options_.resume_share) {
    port.has_paused = false;
    queue_.push(now, port.latency, What::kResume, from);
  }
}

void PacketNetwork::arrive(Time now, std::uint32_t number) {
  const Hop hop = packets_[number].hop;
  PacketWays& ways = ways_[flows_[messages_[packets_[number].message].flow].ways].ways;
  if (ways.kind() == PacketWays::Kind::kSums && !completes_sum(ways, number)) {
    packets_.give_back(number);
    return;
  }
  const std::span<const Hop> after = ways.after(hop);
  if (after.empty()) {
    deliver(now, number);
    return;
  }
  if (ways.kind() == PacketWays::Kind::kCopies) {
    for (const Hop next : after.subspan(1)) {
      const std::uint32_t copy = packets_.take();
      packets_[copy] = packets_[number];
      go_on(now, copy, next);
    }
  }
  go_on(now, number,
        ways.kind() == PacketWays::Kind::kInTurn ? ways.take_turn(hop) : after.front());
}

// Whether with this packet one of every member is there. They keep their order on each link, so the
// n-th of all links are one sum.
bool PacketNetwork::completes_sum(const PacketWays& ways, std::uint32_t number) {
  Packet& packet = packets_[number];
  Flow& flow = flows_[messages_[packet.message].flow];
  const std::span<const Hop> joined = ways.joined_with(packet.hop);
  const std::uint32_t place = ++flow.came[packet.hop];
  const bool completes = std::all_of(joined.begin(), joined.end(),
                                     [&](Hop other) { return flow.came[other] >= place; });
  if (packet.marked_by != kNothing) {
    flow.marked_by = packet.marked_by;
  }
  if (completes) {
    packet.marked_by = std::exchange(flow.marked_by, kNothing);
  }
  return completes;
}

// From the end of the link that it was on to the queue of the next.
void PacketNetwork::go_on(Time now, std::uint32_t number, Hop next) {
  Packet& packet = packets_[number];
  const PacketWays& ways = ways_[flows_[messages_[packet.message].flow].ways].ways;
  const std::uint32_t from = ways.link(packet.hop).value();
  const std::uint32_t to = ways.link(next).value();
  packet.from = from;
  packet.hop = next;
  if (options_.overload == Overload::kTrim) {
    enqueue_or_trim(now, number, to);
    return;
  }
  Port& before = ports_[from];
  before.arrived += packet.size;
  if (!before.has_paused && before.arrived > allowance(before, ports_[to])) {
    before.has_paused = true;
    ++before.pauses;
    queue_.push(now, before.latency, What::kPause, from);
  }
  enqueue(now, number, to);
}

void PacketNetwork::enqueue(Time now, std::uint32_t number, std::uint32_t to) {
  Port& port = ports_[to];
  Packet& packet = packets_[number];
  bool is_marked = port.queued >= port.mark_all;
  if (!is_marked && port.queued > port.mark_from) {
    const double share = static_cast<double>(port.queued - port.mark_from) /
                         static_cast<double>(port.mark_all - port.mark_from);
    is_marked = random_unit(options_.seed, marked_for_++) < share * options_.mark_probability;
  }
  if (is_marked) {
    packet.marked_by = to;
    ++port.marks;
  }
  port.queued += packet.size;
  port.most_queued = std::max(port.most_queued, port.queued);
  if (port.queued > options_.queue_capacity.count()) {
    throw SimulationError(fmt::format(
        "the queue of {} holds {} B, more than its capacity of {} B: pauses come too late for it",
        topology_.link_name(LinkId(to)), port.queued, options_.queue_capacity.count()));
  }
  port.queue.push(packets_.entries(), number);
  transmit(now, to);
}

}  // namespace rackrail::sim
