// The packet level: flows as packets that wait in queues, to check the flow model and to see what
// it cannot: queues, marks and pauses.
//
// A flow is a message that its sender cuts into packets. Every directed link has a queue at its
// beginning, first in, first out; a packet is sent as a whole at the link's rate, takes the latency
// and queues at the next link when its last byte is there (store and forward). So k equal links
// take the message's bytes, k - 1 more packets, and all latencies.
//
// Flows that are sprayed, copied or added on the way (sim/packet_ways.hpp): every switch gives each
// packet of a sprayed flow the next of the links that may take it; a switch that copies has a
// packet in the queue of each link; one that adds keeps what came, in memory without a limit, until
// a packet of every member is there, and sends one. Such a flow has a sender for every link on
// which it begins.
//
// Senders. One sender serves one message at a time on one route and keeps its rate for the next
// message, as a queue pair does; messages under way on one route at the same time have a sender
// each. The senders that start on a link take turns packet by packet, and turns with the queue of
// packets from other links; each sends no faster than its rate control and the flow's own cap say.
//
// Congestion. A packet that finds a long queue is marked (RED on the instantaneous queue), and its
// receiver notifies the sender, at most once per interval, of the link that marked it last. Senders
// raise their rates again by a share of that link, not of their own: so those that share it get
// equal parts of it, whatever links they have themselves. Notifications and pauses take the
// latency of the way back and no bandwidth. A vertex counts what waits in it by the link that
// brought it, and pauses that link above a threshold; so no packet is lost, and what is paused
// holds back everything behind it. Where pauses wait for each other in a circle nothing moves
// again: that is found and said.
//
// Instead of pauses there may be trimming (NDP: Handley et al., SIGCOMM 2017): a packet that finds
// eight full ones waiting loses its payload and goes on before all others. The receiver refuses it,
// so that it is sent again, and for every packet that comes, trimmed or not, asks for one more, at
// the pace at which its link could bring them. A sender starts with a window of packets at the rate
// of its link, and then sends what it is asked for. What is trimmed goes back to the sender at
// once, not through the switch's queue; what switches copy or add cannot be trimmed.
//
// Receivers take packets at once. Links between devices inside a machine are queues like any other.
// Not modelled: loss, several priorities.
//
// Deterministic: integer picoseconds, ties in order of creation, marking by a counter-based
// generator. Two events per packet and link, each O(log of distinct delays) (sim/delay_queue.hpp);
// packets, messages and senders are reused, so memory is what is under way at the same time.
//
// packet_network.cpp: links and queues. packet_senders.cpp: flows, senders and receivers.
// packet_trimming.cpp: refusals and pulls. packet_standstill.cpp: what links without capacity hold.
// packet_report.cpp: statistics, and what waits for what.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/delay_queue.hpp"
#include "sim/network_model.hpp"
#include "sim/packet_options.hpp"
#include "sim/packet_port.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class PacketNetwork final : public NetworkModel {
 public:
  /// Keeps a reference to the topology. Throws ConfigError for options out of range.
  PacketNetwork(const topology::Topology& topology, const PacketOptions& options);

  void start(Time now, std::int64_t bytes, std::span<const LinkId> links, double rate_cap,
             FlowTag tag) override;
  /// Throws ConfigError as PacketWays does, and where what is copied or added might be trimmed.
  void start_spread(Time now, std::int64_t bytes, const SpreadPath& path, FlowTag tag) override;
  /// What is left of a packet that is being sent goes on at the new rate. Thresholds of queues and
  /// the pace of senders and of requests follow; what a link without capacity held goes on as soon
  /// as it has some again.
  void set_capacity(Time now, LinkId link, Bandwidth capacity) override;
  /// Of flows without packets none. What a pause holds back counts once it does so for good, which
  /// may be some time after the link lost its capacity.
  std::vector<HeldFlow> held_flows() const override;
  std::vector<FlowBound> flow_bounds(Time now) const override;
  /// Also the times at which only packets move. Throws SimulationError when flows are under way
  /// that nothing can move again, with the pauses that wait for each other, unless a link without
  /// capacity may be what holds them.
  Time next_event(Time now) override;
  /// Throws SimulationError when a queue holds more than its capacity.
  void take_events(Time now, std::vector<FlowEvent>& events) override;
  std::uint64_t flows_started() const override { return started_; }
  std::vector<QueueUse> queues() const override;
  /// Bytes of packets with their headers; packets of one class that follow each other are one
  /// piece.
  void record_links(std::vector<LinkPiece>& pieces,
                    std::function<bool(FlowTag)> is_background) override;

 private:
  enum class What : std::uint8_t {
    kSent,         ///< a link has sent its packet
    kArrival,      ///< a packet is at the end of its link
    kPause,        ///< a link is told to pause
    kResume,       ///< a link may go on
    kTurn,         ///< a sender may send its next packet
    kNotify,       ///< a sender is told of congestion
    kRefusal,      ///< a sender is told of a trimmed packet
    kPull,         ///< a receiver may ask for the next packet
    kCredit,       ///< a sender may send one packet more
    kNothingLeft,  ///< a flow without packets leaves
    kDelivery,     ///< and is there
  };
  struct Event {
    What what = What::kSent;
    std::uint32_t subject = 0;
  };

  void handle(Time now, Event event);
  void advance(Time until);

  void transmit(Time now, std::uint32_t port);
  void finish_transmission(Time now, std::uint32_t port);
  void interrupt(Time now, std::uint32_t port);
  void resume(Time now, std::uint32_t port);
  void follow_rate(Time now, std::uint32_t port, std::int64_t before);
  void arrive(Time now, std::uint32_t packet);
  void go_on(Time now, std::uint32_t packet, Hop next);
  bool completes_sum(const PacketWays& ways, std::uint32_t packet);
  void enqueue_or_trim(Time now, std::uint32_t packet, std::uint32_t port);
  void enqueue(Time now, std::uint32_t packet, std::uint32_t port);
  void release(Time now, std::uint32_t from, std::uint32_t to, std::int64_t size);
  std::int64_t allowance(const Port& from, const Port& to) const;
  void record_sent(Time now, std::uint32_t port, double bytes);
  void set_thresholds(Port& port, double stretch);
  Time transmission_time(const Port& port, std::int64_t size) const;

  std::uint32_t ways_of(const SpreadPath& path);
  void start_over(Time now, std::int64_t bytes, std::uint32_t ways, double rate_cap, FlowTag tag);
  void add_message(Time now, std::uint32_t flow, std::size_t beginning, std::int64_t bytes,
                   double cap);
  std::uint32_t sender_for(std::uint32_t ways, std::size_t beginning);
  std::uint32_t new_sender(std::uint32_t ways, std::size_t beginning);
  double line_rate(const std::vector<LinkId>& route) const;
  std::int64_t fitting_window(const std::vector<LinkId>& route) const;
  void set_line_rate(Time now, std::uint32_t sender, double rate);
  void take_turn(Time now, std::uint32_t sender);
  void get_in_line(std::uint32_t sender);
  std::uint32_t next_packet(Time now, std::uint32_t port);
  void packet_left(Time now, std::uint32_t message);
  void deliver(Time now, std::uint32_t packet);
  void notify_sender(Time now, std::uint32_t sender, std::uint32_t marked_by);
  bool has_work(const Sender& sender) const;
  void wake(Time now, std::uint32_t sender);
  std::int64_t take_payload(Sender& sender, std::uint32_t* message);
  void ask_for_more(Time now, std::uint32_t sender, std::uint32_t port);
  void pull(Time now, std::uint32_t port);
  void refused(Time now, std::uint32_t packet);
  void finish_flow(std::uint32_t flow);

  bool spreads_standstill(std::vector<std::uint32_t>& held_by) const;
  std::vector<std::uint32_t> held_ports() const;
  void add_held_packets(const std::vector<std::uint32_t>& held_by,
                        std::vector<std::uint32_t>& flows) const;
  [[noreturn]] void fail_stuck() const;
  std::string waiting_chain(std::uint32_t port) const;

  const topology::Topology& topology_;
  PacketOptions options_;
  DelayQueue<Event> queue_;
  std::vector<Port> ports_;  ///< by link
  Pool<Packet> packets_;
  Pool<Message> messages_;
  Pool<Flow> flows_;
  std::vector<Sender> senders_;
  std::vector<UsedWays> ways_;
  /// By links and shares; a route has none of these.
  std::map<std::pair<std::vector<LinkId>, std::vector<double>>, std::uint32_t> ways_by_links_;
  std::vector<FlowEvent> events_;  ///< not yet taken
  std::uint64_t under_way_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t marked_for_ = 0;              ///< counter of the generator
  std::size_t dead_links_ = 0;                ///< without capacity
  std::vector<LinkPiece>* pieces_ = nullptr;  ///< null: they are not recorded
  std::function<bool(FlowTag)> is_background_;
};

}  // namespace rackrail::sim
