// What one could buy: changes of a cluster that an explanation tries out, and what of a scenario
// one could do away with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "explore/conditions.hpp"
#include "plan/cost_model.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

/// How much a change is of: where a narrow one gains as much as a wide one, it is the better
/// answer.
enum class Breadth : std::uint8_t {
  kOne,           ///< a link, or what a scenario says of one thing
  kThereAndBack,  ///< a cable
  kKind,          ///< all of a tier, all devices, all messages
  kAll,           ///< all tiers at once
};

/// One change; parts that are empty leave things as they are.
struct Change {
  std::string what;          ///< "rack-uplink bandwidth", "device speed", …
  std::string by;            ///< "+10 %", "x2", "half", …
  bool is_marginal = false;  ///< 10 % of something: these can be compared with each other
  Breadth breadth = Breadth::kKind;
  std::function<void(LinkId, topology::Link&)> links;
  double device_speed = 1;                        ///< of training, not of codecs
  std::optional<plan::DeviceRates> device_rates;  ///< of all ranks
  std::function<void(topology::Node&)> ranks{};   ///< of each
  /// Of what the scenario says, as read for the changed cluster.
  std::function<void(Conditions&)> conditions{};
  bool is_disturbance = false;  ///< something that goes wrong does not
};

/// Of every tier the bandwidth (+10 %, ×2), what one message may take of it where that is limited,
/// and the latency (−10 %, half), or the number of cores where the tier is a processor; a byte
/// costs the cores the same time before and after, so a link gets no faster than all of them can
/// drive it; the bandwidth of all tiers together, where there are several; the speed of the devices
/// (+10 %, ×2); the overhead of a message (−10 %, half); the rates of the codecs and of additions
/// (+10 %, ×2); where messages are staged in host memory, the rate of these copies (+10 %, ×2), and
/// NICs that need none; and one more uplink for every ToR: with k links upwards, k + 1 over k of
/// the bandwidth of each, in both directions (parallel cables that the topology has as one link are
/// one uplink). What the cluster does not have (overhead, staging, uplinks) is left out. `notes`
/// receives a sentence for what cannot be tried.
std::vector<Change> changes_of(const topology::Topology& topology, std::vector<std::string>& notes);

/// Links that somebody asks about: those of one name.
struct NamedLinks {
  std::string name;
  std::vector<LinkId> links;
};
/// As topology::links_named() knows them. Throws ConfigError when there are none of that name, and
/// for the processor of a machine.
NamedLinks named_links(const topology::Topology& topology, const std::string& name);

/// Changes of these links alone: of their bandwidth; for cables with links in both directions, of
/// the bandwidth, the latency and the bandwidth that one message may take, as changes_of() makes
/// them for tiers. And one more cable in parallel: where k cables join the ends, the bandwidth of
/// each link in either direction grows by the factor 1 + 1/k.
std::vector<Change> changes_of_links(const topology::Topology& topology, const NamedLinks& named);

/// What the conditions have that could be otherwise. Faults are removed one by one, and all
/// together where there are several: slow devices, links that change (each one, up to eight of
/// them), background traffic, and hosts and cables that are lost. Then 10 % more, or twice as much,
/// of the speed of each group of slow devices and of the loading of data, and one more batch
/// prepared ahead. Last, detection and recovery that take 10 % less, or half. `notes` as above.
std::vector<Change> changes_of_conditions(const Conditions& conditions,
                                          const topology::Topology& topology,
                                          std::vector<std::string>& notes);

}  // namespace rackrail::explore
