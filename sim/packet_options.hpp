// Options of the packet level (sim/packet_network.hpp). Thresholds of queues are given as the time
// that a link takes to send what waits, so that one set of values fits links of any speed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/config_tree.hpp"
#include "base/units.hpp"

namespace rackrail::sim {

/// What keeps senders from filling queues.
enum class RateControl : std::uint8_t {
  kNone,   ///< senders send at the rate of their link; only pauses hold them back
  kDcqcn,  ///< sim/rate_control.hpp
};

/// Names as in Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015,
/// with their symbols. Published there, for 40 Gbit/s: N = 50 us, K = T = 55 us, B = 10 MB, F = 5,
/// R_AI = 40 Mbit/s (1/1000 of the link), marking between 5 KB and 200 KB with at most 1 %. With
/// those a sender that was cut recovers within tens of milliseconds, longer than a message of a
/// collective lasts: permutations of 16 MiB then take twice as long as max-min fair rates would
/// give. The defaults are for such messages: intervals of two to four round trips of a loaded
/// fabric, steps of 3 %, and steep marking. Every sender at a full queue is then notified in every
/// interval, so all get equal treatment. results/flow-against-packet.md says how they were chosen.
struct DcqcnOptions {
  double gain = 1.0 / 256;                 ///< g
  Duration notification_interval = 20_us;  ///< N: least time between two notifications of a flow
  Duration alpha_interval = 20_us;         ///< K: alpha decays when none came for so long
  Duration increase_interval = 10_us;      ///< T
  Bytes increase_bytes{10'000'000};        ///< B
  std::uint32_t fast_recovery_steps = 1;   ///< F
  double additive_increase = 0.03;         ///< R_AI as a share of the link that marked
  double hyper_increase = 0.03;            ///< R_HAI, the same
  double least_rate = 1.0 / 100;           ///< of a sender, as a share of its own link
};

/// What a switch does where too much comes.
enum class Overload : std::uint8_t {
  kPause,  ///< pauses the links that bring it (PFC): nothing is lost
  kTrim,   ///< cuts the payload off packets, whose receivers ask for it again
           ///< (sim/packet_network.hpp)
};

/// Handley et al., "Re-architecting Datacenter Networks and Stacks for Low Latency and High
/// Performance" (NDP), SIGCOMM 2017: queues of eight packets, and a first window that fills the way
/// there and back; there 30 packets of 9 KB at 10 Gbit/s. A smaller window holds a sender back for
/// good: it sends a window per round trip.
struct TrimOptions {
  std::int64_t queue_packets = 8;  ///< full packets that may wait; those after them are trimmed
  /// Packets that a sender has under way at most. None: as many as its route's narrowest link sends
  /// while one goes there and the request for the next comes back.
  std::optional<std::int64_t> window;
  Bytes trimmed{64};  ///< size of a packet without its payload
};

struct PacketOptions {
  Bytes payload{4096};  ///< of a full packet
  Bytes header;         ///< on top of it; none, as the flow model has none

  Bytes queue_capacity{32 << 20};  ///< of a link; more is an error where pauses are to prevent it

  /// The times here and in DcqcnOptions are for routes whose latencies, there and back, add up to
  /// this. Senders with longer routes take proportionally longer intervals, and links take
  /// proportionally longer times of the longest route over them, as one would configure a fabric.
  /// For links that send less than 16 packets in `mark_all`, all are longer so that they do.
  Duration round_trip = 7_us;

  /// A packet that finds less than `mark_from` of queue is not marked, one that finds more than
  /// `mark_all` always is; between them the probability rises to `mark_probability`.
  Duration mark_from = 6_us;
  Duration mark_all = 12_us;
  double mark_probability = 1;
  std::uint64_t seed = 1;  ///< of the marking

  /// A switch pauses a link that brought more than `pause_above` of what waits in the switch (PFC,
  /// IEEE 802.1Qbb), or more than `pause_share` of what is still free in the queue that it adds to:
  /// the more links fill a queue, the less each may (dynamic threshold, as in Zhu et al., section
  /// 4). The link goes on when less than `resume_share` of that is left.
  Duration pause_above = 80_us;
  double pause_share = 1.0 / 16;
  double resume_share = 0.9;

  Overload overload = Overload::kPause;
  TrimOptions trim;  ///< with kTrim, whose senders have no other rate control

  RateControl rate_control = RateControl::kDcqcn;
  DcqcnOptions dcqcn;
};

/// Sets the option of this name, as the members are called: "queue_capacity", "trim.window",
/// "dcqcn.gain". Quantities have units; `mark_probability` and shares of a link are 0 to 1. Throws
/// ConfigError at `value` for a name that is not one and for a value that it cannot be.
void set_packet_option(PacketOptions& options, const std::string& name, const ConfigValue& value);
/// The same for a map of them, in which `trim` and `dcqcn` are maps.
void read_packet_options(PacketOptions& options, const ConfigValue& value);
/// All names, with commas between them.
std::string packet_option_names();
/// Throws ConfigError, naming the option, for values out of range or that do not go together.
void require_valid(const PacketOptions& options);

}  // namespace rackrail::sim
