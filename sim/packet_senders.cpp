// Flows, their senders and receivers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "sim/packet_network.hpp"

namespace rackrail::sim {

namespace {

Time whole_time(double time, Time now) {
  time = std::ceil(time);
  if (!(time < kLongestTime - static_cast<double>(now))) {
    throw SimulationError("a flow would end after more than 106 days of simulated time");
  }
  return static_cast<Time>(time);
}

}  // namespace

// The rate at which a machine can send, in bytes per picosecond: of its links, the narrowest up to
// the first that leaves. A link without capacity counts as before that, for it holds what comes.
double PacketNetwork::line_rate(const std::vector<LinkId>& route) const {
  const std::string& host = topology_.node(topology_.link(route.front()).from).host;
  double least = std::numeric_limits<double>::infinity();
  for (const LinkId id : route) {
    least = std::min(least, static_cast<double>(ports_[id.index()].paced_for));
    if (host.empty() || topology_.node(topology_.link(id).to).host != host) {
      break;
    }
  }
  return least / kPicosecondsPerSecond;
}

// A sender whose links have changed: of what it waits for its turn, the rest at its new rate.
void PacketNetwork::set_line_rate(Time now, std::uint32_t number, double rate) {
  Sender& sender = senders_[number];
  if (rate == sender.line) {
    return;
  }
  const bool is_controlled =
      options_.rate_control == RateControl::kDcqcn && options_.overload == Overload::kPause;
  const double before = is_controlled ? sender.control.rate(now) : sender.line;
  sender.line = rate;
  sender.control.set_line_rate(now, rate);
  const double after = is_controlled ? sender.control.rate(now) : sender.line;
  if (sender.turn > now && !sender.is_capped) {
    sender.turn = now + whole_time(static_cast<double>(sender.turn - now) * before / after, now);
    if (sender.wakes_at != kNever) {
      sender.wakes_at = sender.turn;
      queue_.push(now, sender.turn - now, What::kTurn, number);
    }
  }
}

void PacketNetwork::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                          double rate_cap, FlowTag tag) {
  const std::uint32_t ways = links.empty() ? kNothing : ways_of({links, {}, {}});
  start_over(now, bytes, ways, rate_cap / kPicosecondsPerSecond, tag);
}

void PacketNetwork::start_spread(Time now, std::int64_t bytes, const SpreadPath& path,
                                 FlowTag tag) {
  const std::uint32_t ways = ways_of(path);
  const PacketWays::Kind kind = ways_[ways].ways.kind();
  if (options_.overload == Overload::kTrim &&
      (kind == PacketWays::Kind::kCopies || kind == PacketWays::Kind::kSums)) {
    throw ConfigError(ErrorContext{"", "packet level with overload trim",
                                   "a message that switches copy or add", "overload pause"});
  }
  start_over(now, bytes, ways, path.rate_cap / kPicosecondsPerSecond, tag);
}

std::uint32_t PacketNetwork::ways_of(const SpreadPath& path) {
  const auto number = static_cast<std::uint32_t>(ways_.size());
  const auto [at, is_new] = ways_by_links_.try_emplace(
      {{path.links.begin(), path.links.end()}, {path.shares.begin(), path.shares.end()}}, number);
  if (is_new) {
    PacketWays ways =
        path.shares.empty() ? PacketWays(topology_, path.links) : PacketWays(topology_, path);
    const std::size_t beginnings = ways.first().size();
    ways_.push_back({std::move(ways), std::vector<std::vector<std::uint32_t>>(beginnings)});
  }
  return at->second;
}

// `cap` in bytes per picosecond.
void PacketNetwork::start_over(Time now, std::int64_t bytes, std::uint32_t ways_number, double cap,
                               FlowTag tag) {
  advance(now - 1);  // what was still on its way when the last flow ended
  ++started_;
  ++under_way_;
  const std::uint32_t number = flows_.take();
  flows_[number] = {.ways = ways_number, .tag = tag};
  if (bytes == 0 || ways_number == kNothing) {
    if (ways_number != kNothing) {
      const PacketWays& ways = ways_[ways_number].ways;
      for (const Hop first : ways.first()) {
        flows_[number].latency = std::max(flows_[number].latency, ways.latency_from(first));
      }
    }
    queue_.push(now, cap > 0 ? whole_time(static_cast<double>(bytes) / cap, now) : 0,
                What::kNothingLeft, number);
    return;
  }
  const PacketWays& ways = ways_[ways_number].ways;
  flows_[number].undelivered = bytes * static_cast<std::int64_t>(ways.receivers());
  if (ways.kind() == PacketWays::Kind::kSums) {
    flows_[number].came.resize(ways.links().size());
  }
  std::int64_t left = bytes;
  for (std::size_t i = 0; i < ways.first().size(); ++i) {
    std::int64_t part = bytes;
    if (ways.kind() == PacketWays::Kind::kInTurn) {
      const auto share = std::llround(static_cast<double>(bytes) * ways.share(ways.first()[i]));
      part = i + 1 == ways.first().size() ? left : std::min<std::int64_t>(left, share);
      left -= part;
    }
    if (part > 0) {
      add_message(now, number, i, part, cap);
    }
  }
}

// What a flow has to send from one of the links with which its ways begin.
void PacketNetwork::add_message(Time now, std::uint32_t flow_number, std::size_t beginning,
                                std::int64_t bytes, double cap) {
  Flow& flow = flows_[flow_number];
  const std::uint32_t sender = sender_for(flow.ways, beginning);
  const std::uint32_t number = messages_.take();
  messages_[number] = {.sender = sender,
                       .flow = flow_number,
                       .sibling = flow.message,
                       .unsent = bytes,
                       .cap = cap,
                       .last_payload = static_cast<std::int32_t>(bytes % options_.payload.count())};
  flow.message = number;
  ++flow.unsent;
  senders_[sender].message = number;
  ++senders_[sender].open;
  wake(now, sender);
}

std::uint32_t PacketNetwork::sender_for(std::uint32_t ways, std::size_t beginning) {
  std::vector<std::uint32_t>& idle = ways_[ways].idle[beginning];
  if (idle.empty()) {
    return new_sender(ways, beginning);
  }
  const std::uint32_t sender = idle.back();
  idle.pop_back();
  return sender;
}

std::uint32_t PacketNetwork::new_sender(std::uint32_t ways_number, std::size_t beginning) {
  const PacketWays& ways = ways_[ways_number].ways;
  const Hop first = ways.first()[beginning];
  const Time latency = ways.latency_from(first);
  const double stretch = std::max(1.0, 2 * static_cast<double>(latency) /
                                           static_cast<double>(options_.round_trip.picoseconds()));
  for (const LinkId link : ways.links()) {
    Port& port = ports_[link.index()];
    if (stretch > port.stretch) {
      set_thresholds(port, stretch);
    }
  }
  senders_.emplace_back(ways_number, beginning, ways.link(first).value(), options_.dcqcn,
                        line_rate(ways.one_from(first)), latency, stretch);
  senders_.back().window = options_.trim.window.value_or(fitting_window(ways.one_from(first)));
  senders_.back().credits = senders_.back().window;
  return static_cast<std::uint32_t>(senders_.size() - 1);
}

// What the narrowest link sends while a packet goes over the route and the request for one more
// comes back, and the one that is being sent.
std::int64_t PacketNetwork::fitting_window(const std::vector<LinkId>& route) const {
  Time longest = 1;
  Time round_trip = 0;
  for (const LinkId id : route) {
    const Port& port = ports_[id.index()];
    longest = std::max(longest, port.full_packet_time);
    round_trip += port.full_packet_time + 2 * port.latency;
  }
  return (round_trip + longest - 1) / longest + 1;
}

void PacketNetwork::get_in_line(std::uint32_t sender) {
  ports_[senders_[sender].port].senders.push(senders_, sender);
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
    sender.wakes_at = sender.turn;
    queue_.push(now, sender.turn - now, What::kTurn, number);
    return;
  }
  get_in_line(number);
  transmit(now, sender.port);
}

// The turn of a sender comes, unless it has been moved to another time.
void PacketNetwork::take_turn(Time now, std::uint32_t number) {
  Sender& sender = senders_[number];
  if (sender.wakes_at == now) {
    sender.wakes_at = kNever;
    get_in_line(number);
    transmit(now, sender.port);
  }
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
  const double capped =
      messages_[message].cap > 0 ? static_cast<double>(payload) / messages_[message].cap : 0;
  sender.is_capped = capped > interval;
  interval = std::max(interval, capped);
  sender.turn = std::max(sender.turn + whole_time(interval, now), now);

  const std::uint32_t number = packets_.take();
  packets_[number] = {.message = message,
                      .payload = static_cast<std::int32_t>(payload),
                      .size = static_cast<std::int32_t>(size),
                      .hop = ways_[sender.ways].ways.first()[sender.begins]};
  return number;
}

// A sender's packet has left: it waits for its next turn, and its message may have left with it.
void PacketNetwork::packet_left(Time now, std::uint32_t number) {
  const Message& message = messages_[number];
  const std::uint32_t sender_number = message.sender;
  Sender& sender = senders_[sender_number];
  sender.is_up = false;
  if (sender.message == number && message.unsent == 0) {
    Flow& flow = flows_[message.flow];
    if (--flow.unsent == 0) {
      events_.push_back({flow.tag, false});
    }
    sender.message = kNothing;
    ways_[sender.ways].idle[sender.begins].push_back(sender_number);
  }
  wake(now, sender_number);
}

void PacketNetwork::notify_sender(Time now, std::uint32_t number, std::uint32_t marked_by) {
  Sender& sender = senders_[number];
  if (now >= sender.notify_from) {
    sender.notify_from = now + sender.notification_interval;
    sender.marked_by = marked_by;
    queue_.push(now, sender.back, What::kNotify, number);
  }
}

void PacketNetwork::deliver(Time now, std::uint32_t number) {
  const Packet packet = packets_[number];
  const Message message = messages_[packet.message];
  Flow& flow = flows_[message.flow];
  const PacketWays& ways = ways_[flow.ways].ways;
  const std::uint32_t last_link = ways.link(packet.hop).value();
  if (packet.is_trimmed) {
    queue_.push(now, senders_[message.sender].back, What::kRefusal, number);
    ask_for_more(now, message.sender, last_link);
    return;
  }
  packets_.give_back(number);
  if (packet.marked_by != kNothing && options_.rate_control == RateControl::kDcqcn) {
    if (ways.kind() == PacketWays::Kind::kSums) {
      for (std::uint32_t m = flow.message; m != kNothing; m = messages_[m].sibling) {
        notify_sender(now, messages_[m].sender, packet.marked_by);
      }
    } else {
      notify_sender(now, message.sender, packet.marked_by);
    }
  }
  flow.undelivered -= packet.payload;
  if (flow.undelivered == 0) {
    finish_flow(message.flow);
  }
  if (options_.overload == Overload::kTrim) {
    ask_for_more(now, message.sender, last_link);
  }
}

void PacketNetwork::finish_flow(std::uint32_t number) {
  const Flow& flow = flows_[number];
  events_.push_back({flow.tag, true});
  for (std::uint32_t m = flow.message; m != kNothing; m = messages_[m].sibling) {
    --senders_[messages_[m].sender].open;
    messages_.give_back(m);
  }
  flows_.give_back(number);
  --under_way_;
}

}  // namespace rackrail::sim
