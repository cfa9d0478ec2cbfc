// Options of the packet level (sim/packet_network.hpp). Thresholds of queues are given as the time
// that a link takes to send what waits, so that one set of values fits links of any speed.
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace rackrail::sim {

/// What keeps senders from filling queues.
enum class RateControl : std::uint8_t {
  kNone,   ///< senders send at the rate of their link; only pauses hold them back
  kDcqcn,  ///< sim/rate_control.hpp
};

/// Names as in Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015,
/// with their symbols. The values are those of the paper's section 5 unless said otherwise.
struct DcqcnOptions {
  double gain = 1.0 / 256;                 ///< g
  Duration notification_interval = 50_us;  ///< N: least time between two notifications of a flow
  Duration alpha_interval = 55_us;         ///< K: alpha decays when none came for so long
  Duration increase_interval = 55_us;      ///< T
  Bytes increase_bytes{10'000'000};        ///< B
  std::uint32_t fast_recovery_steps = 5;   ///< F
  double additive_increase = 1.0 / 1000;   ///< R_AI as a share of the link: 40 Mbit/s of 40 Gbit/s
  double hyper_increase = 1.0 / 100;       ///< R_HAI as a share of the link
};

struct PacketOptions {
  Bytes payload{4096};  ///< of a full packet
  Bytes header;         ///< on top of it; none, as the flow model has none

  Bytes queue_capacity{32 << 20};  ///< of a link; more is an error where pauses are to prevent it

  // The four times below hold for links that send at least 16 packets in `mark_all`; for slower
  // ones all four are longer by the same factor, so that they do.

  /// A packet that finds less than `mark_from` of queue is not marked, one that finds more than
  /// `mark_all` always is; between them the probability rises to `mark_probability`.
  Duration mark_from = 8_us;
  Duration mark_all = 32_us;
  double mark_probability = 0.2;
  std::uint64_t seed = 1;  ///< of the marking

  /// A switch pauses a link that brought more than `pause_above` of what waits in the switch, and
  /// lets it go on when less than `resume_below` is left (PFC, IEEE 802.1Qbb).
  Duration pause_above = 40_us;
  Duration resume_below = 36_us;

  RateControl rate_control = RateControl::kDcqcn;
  DcqcnOptions dcqcn;
};

}  // namespace rackrail::sim
