// The rate of one sender under DCQCN: Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015, sections 3.3 and figure 7.
//
// A notification of congestion cuts the rate by alpha / 2 and remembers the rate before it as the
// target; alpha is a moving average of whether notifications come. From then on every T and every B
// bytes the rate rises: the first F times halfway to the target (fast recovery), then the target
// itself moves by R_AI (additive), and after F of both by R_HAI (hyper increase). Both are shares
// of the link that marked last: adapters have them in bit/s, the same for all of a fabric, and with
// shares of their own line rates the faster ones would push the slower ones aside. A sender never
// sends slower than a share of its line rate, as adapters have it (Mellanox: rpg_min_rate).
//
// The rate matters only when a packet is sent, so time that passed is made up for then: a sender
// needs no events of its own, and one that is held back for good leaves none behind.
#pragma once

#include <cstdint>

#include "sim/packet_options.hpp"
#include "sim/time.hpp"

namespace rackrail::sim {

class DcqcnRate {
 public:
  /// `line_rate` in bytes per picosecond: the first rate and the highest. All intervals are
  /// `stretch` times those of the options. Keeps the options.
  DcqcnRate(const DcqcnOptions& options, double line_rate, double stretch = 1);

  /// Times must not go back from call to call.
  /// `link_rate`: bytes per picosecond of the link that marked, of which increases are a share; 0,
  /// where it has none any more, leaves them as they are.
  void notify(Time now, double link_rate);
  /// Bytes per picosecond.
  double rate(Time now);
  void sent(std::int64_t bytes);
  /// Picoseconds from `now` in which the rate adds up to so many bytes, if no notification comes.
  double time_for(std::int64_t bytes, Time now) const;
  /// The rate up to which it may rise is another one. A sender that was at the old one is at the
  /// new one; one below it stays a part of a link that has become faster, for it may have been cut
  /// for the slow one's sake, and is soon cut again if not.
  void set_line_rate(Time now, double line_rate);
  /// Likewise the link that marked last, if there was one: above 0.
  void set_link_rate(Time now, double link_rate);
  double alpha() const { return alpha_; }

 private:
  void decay_alpha(Time now);
  void increase();

  const DcqcnOptions* options_;
  Time alpha_interval_;
  Time increase_interval_;
  double line_rate_;
  double rate_;
  double target_;
  double link_rate_;
  double alpha_ = 1;
  Time alpha_at_ = 0;     ///< until when alpha is made up for
  Time increase_at_ = 0;  ///< of the next increase by time
  std::int64_t bytes_ = 0;
  std::uint32_t by_time_ = 0;
  std::uint32_t by_bytes_ = 0;
};

}  // namespace rackrail::sim
