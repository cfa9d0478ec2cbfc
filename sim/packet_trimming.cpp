// Trimming, refusals and pulls.
#include <algorithm>

#include "sim/packet_network.hpp"

namespace rackrail::sim {

void PacketNetwork::enqueue_or_trim(Time now, std::uint32_t number, std::uint32_t to) {
  Port& port = ports_[to];
  Packet& packet = packets_[number];
  const std::int64_t full_packet = options_.payload.count() + options_.header.count();
  // Smaller than its header a packet does not get; so tiny ones are never trimmed.
  const bool is_too_much = port.queued + packet.size > options_.trim.queue_packets * full_packet &&
                           packet.size > options_.trim.trimmed.count();
  if (!packet.is_trimmed && is_too_much) {
    packet.is_trimmed = true;
    packet.size = static_cast<std::int32_t>(options_.trim.trimmed.count());
    ++port.trims;
  }
  if (packet.is_trimmed) {
    port.trimmed.push(packets_.entries(), number);
  } else {
    port.queued += packet.size;
    port.most_queued = std::max(port.most_queued, port.queued);
    port.queue.push(packets_.entries(), number);
  }
  transmit(now, to);
}

// The sender of a trimmed packet hears of it.
void PacketNetwork::refused(Time now, std::uint32_t number) {
  const Packet packet = packets_[number];
  packets_.give_back(number);
  Message& message = messages_[packet.message];
  Sender& sender = senders_[message.sender];
  if (message.full_again == 0 && !message.is_last_again) {
    sender.again.push(messages_.entries(), packet.message);
  }
  if (packet.payload == options_.payload.count()) {
    ++message.full_again;
  } else {
    message.is_last_again = true;
  }
  wake(now, message.sender);
}

// A packet came: its sender may send one more. What is on its way to one receiver is asked for at
// the pace of the last link; a sender with nothing left to bring takes no part in that.
void PacketNetwork::ask_for_more(Time now, std::uint32_t number, std::uint32_t last) {
  Port& port = ports_[last];
  port.pulls.push_back() = number;
  if (port.pulls_at == kNever) {
    pull(now, last);
  }
}

void PacketNetwork::pull(Time now, std::uint32_t port_number) {
  Port& port = ports_[port_number];
  bool is_pulling = false;
  while (!port.pulls.empty() && !is_pulling) {
    const std::uint32_t number = port.pulls.front();
    port.pulls.pop_front();
    queue_.push(now, senders_[number].back, What::kCredit, number);
    is_pulling = senders_[number].open > 0;
  }
  port.pulls_at = is_pulling ? now + port.full_packet_time : kNever;
  if (is_pulling) {
    queue_.push(now, port.full_packet_time, What::kPull, port_number);
  }
}

}  // namespace rackrail::sim
