// What one could buy: changes of a cluster that an explanation tries out.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

/// One change; parts that are empty leave things as they are.
struct Change {
  std::string what;          ///< "rack-uplink bandwidth", "device speed", …
  std::string by;            ///< "+10 %", "x2", "half", …
  bool is_marginal = false;  ///< 10 % of something: these can be compared with each other
  bool is_broad = false;     ///< of all tiers at once
  std::function<void(LinkId, topology::Link&)> links;
  double device_speed = 1;                        ///< of training, not of codecs
  std::optional<plan::DeviceRates> device_rates;  ///< of all ranks
};

/// Of every tier the bandwidth (+10 %, ×2), what one message may take of it where that is limited,
/// and the latency (−10 %, half), or the number of cores where the tier is a processor; a byte
/// costs the cores the same time before and after, so a link gets no faster than all of them can
/// drive it; the bandwidth of all tiers together, where there are several; the speed of the devices
/// (+10 %, ×2); the overhead of a message (−10 %, half); the rates of the codecs and of additions
/// (+10 %, ×2); and one more uplink for every ToR: with k links upwards, k + 1 over k of the
/// bandwidth of each, in both directions (parallel cables that the topology has as one link are one
/// uplink). What the cluster does not have (overhead, uplinks) is left out. `notes` receives a
/// sentence for what cannot be tried.
std::vector<Change> changes_of(const topology::Topology& topology, std::vector<std::string>& notes);

}  // namespace rackrail::explore
