// What the packet level says to people: statistics of queues, and what waits for what.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "sim/packet_network.hpp"

namespace rackrail::sim {

std::vector<QueueUse> PacketNetwork::queues() const {
  std::vector<QueueUse> uses;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const Port& port = ports_[i];
    if (port.most_queued > 0 || port.pauses > 0) {
      uses.push_back({LinkId(i), Bytes(port.most_queued), port.marks, port.pauses, port.trims});
    }
  }
  return uses;
}

void PacketNetwork::record_links(std::vector<LinkPiece>& pieces,
                                 std::function<bool(FlowTag)> is_background) {
  pieces_ = &pieces;
  is_background_ = std::move(is_background);
}

// Of the packet that a link sends: so many bytes since Port::since.
void PacketNetwork::record_sent(Time now, std::uint32_t number, double bytes) {
  Port& port = ports_[number];
  const Packet& packet = packets_[port.current];
  const bool is_background = is_background_(flows_[messages_[packet.message].flow].tag);
  if (port.last_piece < pieces_->size()) {
    LinkPiece& last = (*pieces_)[port.last_piece];
    if (last.link.value() == number && last.end == port.since &&
        last.is_background == is_background) {
      last.end = now;
      last.bytes += bytes;
      return;
    }
  }
  port.last_piece = pieces_->size();
  pieces_->push_back({LinkId(number), port.since, now, bytes, is_background});
}

void PacketNetwork::fail_stuck() const {
  for (std::uint32_t i = 0; i < ports_.size(); ++i) {
    if (ports_[i].is_paused && !ports_[i].queue.empty()) {
      throw SimulationError("the simulation can never end: " + waiting_chain(i));
    }
  }
  throw SimulationError(fmt::format(
      "the simulation can never end: {} flows are under way, but no packet moves", under_way_));
}

// From a paused link to a link that has what fills the pausing vertex, until one comes again.
std::string PacketNetwork::waiting_chain(std::uint32_t port) const {
  std::string text;
  std::vector<std::uint32_t> seen;
  while (std::find(seen.begin(), seen.end(), port) == seen.end()) {
    seen.push_back(port);
    const std::string end = topology_.node(topology_.link(LinkId(port)).to).name;
    std::uint32_t next = kNothing;
    for (std::uint32_t i = 0; i < ports_.size() && next == kNothing; ++i) {
      for (std::uint32_t packet = ports_[i].queue.front(); packet != kNothing;
           packet = packets_[packet].next) {
        if (packets_[packet].from == port) {
          next = i;
          break;
        }
      }
    }
    if (next == kNothing) {
      return text + fmt::format("{} is paused by {}", topology_.link_name(LinkId(port)), end);
    }
    text += fmt::format("{} is paused by {}, whose buffer for it waits for ",
                        topology_.link_name(LinkId(port)), end);
    port = next;
  }
  return text + topology_.link_name(LinkId(port));
}

}  // namespace rackrail::sim
