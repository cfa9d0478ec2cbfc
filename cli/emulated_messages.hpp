// Messages over the links of an emulated network: their predicted and their measured times.
//
// Links of one tier with the same rates are equivalent, so one represents all of them. Two ranks
// send a message of each size over it and back; half of the round trip is the message's time. The
// two ranks are chosen among all pairs whose route uses such a link: first those for which it is
// the slowest link of the route, if there are any, then those with the shortest route. As a
// schedule, the round trip is the smallest all-reduce of two ranks. The receiver adds its own
// values and sends the sum back, so half an addition is part of both the predicted and the measured
// time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// The share of a round trip that counts as the time of one message.
inline constexpr double kOneWay = 0.5;
/// Smaller messages are dominated by the cores and the kernel, which are not simulated. Their
/// errors are shown, but not compared with any bound on errors.
inline constexpr Bytes kLeastMessageJudged = 64_KiB;

struct LinkWay {
  std::string link;  ///< "tor0 - core", or "host0 - tor0"
  Rank from;
  Rank to;
  std::vector<LinkId> there;
  std::vector<LinkId> back;  ///< over the same cables
  bool is_slowest = false;   ///< the link on its way, in both directions
};

/// One for each kind of link between two machines or switches: of its tier and rates, in the order
/// of `network`, which is an emulated one (emulated_topology, runtime/emulate/network_plan.hpp).
/// Kinds that are on no route of two ranks are left out. Throws ConfigError where a link on such a
/// route has no way back.
std::vector<LinkWay> link_ways(const topology::Topology& network);

struct EmulatedMessage {
  std::string link;
  std::string from;  ///< names of ranks
  std::string to;
  bool is_slowest = false;  ///< as in LinkWay
  Bytes size;
  Duration predicted;
  Duration measured;  ///< zero until somebody has

  double error() const { return predicted / measured - 1; }
};

/// Messages of two ranks.
struct MessagePlan {
  /// For a job of these two alone; each bucket is a message there and back.
  plan::Plan plan;
  std::vector<Rank> ranks;
  std::vector<EmulatedMessage> cases;  ///< by bucket
};

/// One plan for each of link_ways(). Sizes are of FP32 values.
std::vector<MessagePlan> plan_messages(const topology::Topology& network,
                                       const sim::SimulationOptions& simulation,
                                       std::span<const Bytes> sizes);

}  // namespace rackrail::cli
