// What links without capacity hold: packets in front of them, and what is paused for good behind.
// And what slow ones hold up.
#include <algorithm>
#include <map>
#include <vector>

#include "sim/packet_network.hpp"

namespace rackrail::sim {

namespace {

/// Calls `found` with each packet in a queue.
template <typename Found>
void for_each_packet(const LinkedQueue<Packet>& queue, const std::vector<Packet>& pool,
                     Found found) {
  for (std::uint32_t packet = queue.front(); !queue.empty() && packet != kNothing;
       packet = pool[packet].next) {
    found(packet);
  }
}

}  // namespace

// One round: links that are paused for good by packets in front of links that stand still. Whether
// there were any.
bool PacketNetwork::spreads_standstill(std::vector<std::uint32_t>& held_by) const {
  struct Held {
    std::int64_t bytes = 0;
    std::uint32_t by = kNothing;
  };
  std::map<std::uint32_t, Held> behind;  // by the link that brought the packets
  const auto add = [&](std::uint32_t packet, std::uint32_t by) {
    if (packets_[packet].from != kNothing) {
      Held& held = behind[packets_[packet].from];
      held.bytes += packets_[packet].size;
      held.by = std::min(held.by, by);
    }
  };
  for (std::uint32_t i = 0; i < ports_.size(); ++i) {
    if (held_by[i] == kNothing) {
      continue;
    }
    for_each_packet(ports_[i].queue, packets_.entries(),
                    [&](std::uint32_t packet) { add(packet, held_by[i]); });
    if (ports_[i].bytes_per_second == 0 && ports_[i].current != kNothing) {
      add(ports_[i].current, held_by[i]);
    }
  }
  bool spreads = false;
  for (const auto& [link, held] : behind) {
    const Port& port = ports_[link];
    const double least_to_resume = static_cast<double>(port.pause_above) * options_.resume_share;
    const bool stays = held.bytes == port.arrived ||
                       static_cast<double>(held.bytes) >= least_to_resume;  // see release()
    if (held_by[link] == kNothing && port.is_paused && port.has_paused && stays) {
      held_by[link] = held.by;
      spreads = true;
    }
  }
  return spreads;
}

// By link: the link without capacity because of which it will send nothing again, or kNothing.
std::vector<std::uint32_t> PacketNetwork::held_ports() const {
  std::vector<std::uint32_t> held_by(ports_.size(), kNothing);
  for (std::uint32_t i = 0; i < ports_.size(); ++i) {
    held_by[i] = ports_[i].bytes_per_second == 0 ? i : kNothing;
  }
  while (spreads_standstill(held_by)) {
  }
  return held_by;
}

// Flows with a packet in front of a link that stands still.
void PacketNetwork::add_held_packets(const std::vector<std::uint32_t>& held_by,
                                     std::vector<std::uint32_t>& flows) const {
  for (std::uint32_t i = 0; i < ports_.size(); ++i) {
    const Port& port = ports_[i];
    if (held_by[i] == kNothing) {
      continue;
    }
    const auto hold = [&](std::uint32_t packet) {
      flows[messages_[packets_[packet].message].flow] = held_by[i];
    };
    for_each_packet(port.queue, packets_.entries(), hold);
    for_each_packet(port.trimmed, packets_.entries(), hold);
    if (port.bytes_per_second == 0 && port.current != kNothing) {
      hold(port.current);
    }
  }
}

std::vector<HeldFlow> PacketNetwork::held_flows() const {
  if (dead_links_ == 0) {
    return {};
  }
  const std::vector<std::uint32_t> held_by = held_ports();
  std::vector<std::uint32_t> by(flows_.entries().size(), kNothing);
  add_held_packets(held_by, by);
  std::vector<HeldFlow> held;
  for (std::uint32_t i = 0; i < by.size(); ++i) {
    const Flow& flow = flows_[i];
    if (flow.undelivered == 0) {
      continue;
    }
    // What is not sent yet will come to every link of its route; of several ways it takes, to those
    // with which they begin.
    for (std::uint32_t m = flow.message; m != kNothing && by[i] == kNothing;
         m = messages_[m].sibling) {
      const Message& message = messages_[m];
      if (message.unsent == 0 && message.full_again == 0 && !message.is_last_again) {
        continue;
      }
      const PacketWays& ways = ways_[flow.ways].ways;
      by[i] = held_by[senders_[message.sender].port];
      for (const LinkId link : ways.links()) {
        if (by[i] == kNothing && ways.kind() != PacketWays::Kind::kInTurn) {
          by[i] = held_by[link.index()];
        }
      }
    }
    if (by[i] != kNothing) {
      held.push_back({flow.tag, LinkId(by[i])});
    }
  }
  return held;
}

// Of flows over one route: bytes that are not sent yet or wait in front of the slowest link. What
// that link is sending and what is on its way to it is left out, so that it is never too much.
std::vector<FlowBound> PacketNetwork::flow_bounds(Time /*now*/) const {
  struct Way {
    std::vector<LinkId> until_slowest;  // with it; empty: not known
    double bytes = 0;
  };
  const auto rate = [this](LinkId link) { return ports_[link.index()].bytes_per_second; };
  std::vector<Way> by_flow(flows_.entries().size());
  for (std::uint32_t i = 0; i < by_flow.size(); ++i) {
    const Flow& flow = flows_[i];
    if (flow.undelivered == 0 || ways_[flow.ways].ways.kind() != PacketWays::Kind::kRoute) {
      continue;
    }
    const PacketWays& ways = ways_[flow.ways].ways;
    std::vector<LinkId>& links = by_flow[i].until_slowest;
    links = ways.one_from(ways.first().front());
    const auto slowest = std::min_element(links.begin(), links.end(),
                                          [&](LinkId a, LinkId b) { return rate(a) < rate(b); });
    links.erase(slowest + 1, links.end());
    by_flow[i].bytes = static_cast<double>(messages_[flow.message].unsent);
  }
  for (std::uint32_t i = 0; i < ports_.size(); ++i) {
    const auto add = [&](std::uint32_t packet) {
      Way& way = by_flow[messages_[packets_[packet].message].flow];
      const auto& links = way.until_slowest;
      if (std::find(links.begin(), links.end(), LinkId(i)) != links.end()) {
        way.bytes += packets_[packet].payload;
      }
    };
    for_each_packet(ports_[i].queue, packets_.entries(), add);
  }
  std::vector<FlowBound> bounds;
  for (std::uint32_t i = 0; i < by_flow.size(); ++i) {
    if (!by_flow[i].until_slowest.empty() && rate(by_flow[i].until_slowest.back()) > 0) {
      const LinkId slowest = by_flow[i].until_slowest.back();
      const auto per_second = static_cast<double>(rate(slowest));
      bounds.push_back({flows_[i].tag, slowest, Bandwidth(rate(slowest)),
                        by_flow[i].bytes / per_second * kPicosecondsPerSecond});
    }
  }
  return bounds;
}

}  // namespace rackrail::sim
