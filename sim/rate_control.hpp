// The rate of one sender under DCQCN: Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015, sections 3.3 and figure 7.
//
// A notification of congestion cuts the rate by alpha / 2 and remembers the rate before it as the
// target; alpha is a moving average of whether notifications come. From then on every T and every B
// bytes the rate rises: the first F times halfway to the target (fast recovery), then the target
// itself moves by R_AI (additive), and after F of both by R_HAI (hyper increase).
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
  /// `line_rate` in bytes per picosecond: the first rate and the highest. Keeps the options.
  DcqcnRate(const DcqcnOptions& options, double line_rate);

  /// Times must not go back from call to call.
  void notify(Time now);
  /// Bytes per picosecond.
  double rate(Time now);
  void sent(std::int64_t bytes);
  double alpha() const { return alpha_; }

 private:
  void decay_alpha(Time now);
  void increase();

  const DcqcnOptions* options_;
  double line_rate_;
  double rate_;
  double target_;
  double alpha_ = 1;
  Time alpha_at_ = 0;     ///< until when alpha is made up for
  Time increase_at_ = 0;  ///< of the next increase by time
  std::int64_t bytes_ = 0;
  std::uint32_t by_time_ = 0;
  std::uint32_t by_bytes_ = 0;
};

}  // namespace rackrail::sim
