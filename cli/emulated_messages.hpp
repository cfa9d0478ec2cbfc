// Messages over the links of an emulated network: what is predicted of them, and what they take.
//
// Links of one tier and the same rates are alike, so one stands for all of them. Two ranks send a
// message of each size there and back over it; half of that is its time. Of all pairs of ranks
// whose way leads over such a link those are taken for which it is the slowest on the way, where
// there are any, and of those the ones with the shortest way. As a schedule a message there and
// back is the least all-reduce of two ranks: the one that gets it adds its own values, and sends
// the sum back, so half an addition is part of the time, predicted as well as measured.
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

/// Of the time of a message there and back.
inline constexpr double kOneWay = 0.5;
/// Smaller ones are what the cores and the kernel make of them, which is not simulated: their
/// errors are shown, and no bound on errors is held against them.
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
