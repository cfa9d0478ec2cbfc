// Clusters whose optimum is known, for tests and benchmarks. Rates in GB/s each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::test {

/// Boxes of 8 GPUs on an NVSwitch (300 per GPU); GPU i of every box has 25 to switch i mod `rails`.
topology::Topology boxes(int count, int rails);
/// Boxes with as many GPUs as nics[box] has entries, on an NVSwitch (300 per GPU); GPU i has a NIC
/// of nics[box][i] to switch i mod `rails`, none where that is 0. `inside` are other rates of
/// boxes' NVSwitches, if any.
topology::Topology boxes_with_nics(const std::vector<std::vector<int>>& nics, int rails,
                                   const std::vector<int>& inside = {});
/// Boxes of 8 GPUs on eight rails with NICs of 25, but for one of `rate` in the first; 0: without.
topology::Topology rails_with_slow_nic(std::size_t boxes, int rate);
/// Eight such boxes with a NIC of 12 on each rail, in another box each.
topology::Topology rails_with_slow_diagonal();
/// Six boxes of 4 GPUs on four rails with NICs of 25; of 10 in so many, every second one.
topology::Topology rails_with_slow_boxes(std::size_t slow);
/// Two kinds of boxes in one cluster: two with 8 NICs of 25 and two with 4 of 12 and slower NVLink,
/// on two switches that do not meet; boxes of 8 and of 4 GPUs in turn on one switch; on four rails
/// three boxes with 8 NICs of 12 and three of 4 GPUs with NICs of 25 and slower NVLink.
topology::Topology old_and_new_boxes();
topology::Topology large_and_small_boxes();
topology::Topology rails_of_two_kinds();
/// A rack of boxes that have NICs as above: GPU i's goes to leaf i mod leaves, which has a cable of
/// uplinks[leaf][s] to spine s; 0: none.
struct BoxRack {
  std::vector<std::vector<int>> nics;
  std::vector<std::vector<int>> uplinks;
};
topology::Topology racks_of_boxes(const std::vector<BoxRack>& racks);
/// Such racks: two boxes of 8 GPUs under 200 and three of 4 under 150, NICs of 25; two racks of two
/// boxes of 8 on four leaves of two cables of 25 each, of which one is lost.
topology::Topology racks_of_two_kinds();
topology::Topology rails_with_lost_cable();
/// Irregular ones, on one switch or, the last, on two. Four hosts of 4 GPUs with NICs of 25, 25, 10
/// and 3: those of a host are alike, or each host has all four.
topology::Topology nics_by_host();
topology::Topology nics_by_gpu();
/// Hosts of 6, 3 and 4 GPUs with NICs of 25, of 50, and of 10 and 25 in turn.
topology::Topology uneven_hosts();
/// Three hosts of 4 GPUs, the outer ones with two NICs each.
topology::Topology missing_nics();
/// GPUs in rows and columns, joined to their neighbours by links of 1; with `wrap`, the last of a
/// row or column to the first.
topology::Topology grid(int rows, int columns, bool wrap);
/// The same in three dimensions, as a torus.
topology::Topology cuboid(int layers, int rows, int columns);
/// Two racks of two hosts: 10 per host, 4 per rack uplink.
topology::Topology two_racks();
/// Racks of hosts with 10 each, under ToRs with `uplinks` links of 10 each to as many spines; rack
/// i has hosts[i] hosts.
topology::Topology clos(const std::vector<int>& hosts, int uplinks);
/// Racks of hosts of one rank with nics[r] under a leaf that has a cable of cables[r][s] to spine
/// s; 0: none. All switches reduce and multicast.
topology::Topology clos_of_cables(const std::vector<std::vector<int>>& nics,
                                  const std::vector<std::vector<int>>& cables);
/// Such ones: racks of 2, 4 and 3 hosts with NICs of 10 under spines of unlike rates, 10 in all;
/// racks of 4 under three spines, each without a cable to one of them; the same with a slow cable
/// instead; 32 hosts in racks of 3 to 10 with NICs of 10 and 25 and cables of 0 to 5.
topology::Topology clos_of_unlike_spines();
topology::Topology clos_with_lost_cables();
topology::Topology clos_with_slow_cables();
topology::Topology clos_of_unlike_racks();
/// Racks of hosts under one core switch: hosts with nics[r] under a ToR with an uplink of
/// uplinks[r].
topology::Topology racks(const std::vector<std::vector<int>>& nics,
                         const std::vector<int>& uplinks);
/// Hosts of 4 GPUs on two PCIe switches (32 per link) with a NIC of 25 each, to one switch.
topology::Topology pcie_hosts(int hosts);
/// Pods of such racks: hosts[p][r] hosts with 10 each in rack r of pod p, `uplinks` links of 10
/// from each ToR to as many spines of its pod, and one of 10 from each of those to the core.
topology::Topology three_tiers(const std::vector<std::vector<int>>& hosts, int uplinks);
/// Pods of racks of hosts of GPUs: gpus[p][r][h] of them in host h, on an NVSwitch (300 per GPU)
/// with one NIC of 12; a ToR and a spine of the pod have one uplink of 6 each. A single pod has no
/// core switch.
topology::Topology pods(const std::vector<std::vector<std::vector<int>>>& gpus);
/// Some pods of some racks of some hosts of some GPUs, one in four with as many of each.
topology::Topology random_pods(std::uint64_t seed);
/// The 8 GPUs of a DGX-1V (NVIDIA, "NVIDIA DGX-1 With Tesla V100 System Architecture", 2017): 6
/// links of 1 per GPU.
topology::Topology cube_mesh();
/// Seven hosts with 100 and one with 25 on a switch.
topology::Topology uneven_star();
/// Hosts of one rank with a NIC of nics[i] to switch i each.
topology::Topology hosts_with_nics(int hosts, const std::vector<int>& nics);
/// GPUs on a switch that reduces and multicasts, with 1 and 3 µs of latency each; `hosts` names the
/// host of each, `staging` is the rate (B/s) at which it copies to the memory of its host; 0: it
/// does not.
topology::Topology staged_gpus(const std::vector<std::string>& hosts, std::int64_t staging);
/// Racks of hosts of GPUs on an NVSwitch (300 per GPU) and on as many PCIe switches as NICs (31.5
/// per link), whose NICs of 56.8 go to one leaf each of the rack; of what enters a leaf from below
/// one part in `oversubscription` goes up, evenly over the spines.
struct RailRacks {
  int racks = 2;
  int hosts = 2;
  int gpus = 8;
  int nics = 4;
  int spines = 4;
  int oversubscription = 4;
};
topology::Topology rail_racks(const RailRacks& shape);
/// The shipped a100-8x8 with two nodes in each of its racks: 32 GPUs, from where on the planner
/// looks at fewer slices and bucket sizes.
topology::Topology a100_4x8();
/// The same with four racks of four nodes each: 128 GPUs.
topology::Topology a100_16x8();
/// The shipped h100-32x8-rail four times, under spines: 1,024 GPUs.
topology::Topology h100_128x8();

/// The same cluster whose switches of these kinds, and no others, reduce and multicast.
topology::Topology able(topology::Topology topology,
                        std::initializer_list<topology::NodeKind> kinds);

/// The same cluster whose links let so much pass at once.
topology::Topology with_bursts(const topology::Topology& topology,
                               const std::function<Bytes(LinkId)>& burst);

/// Links on the longest of the shortest ways between ranks.
std::size_t diameter_of(const topology::Topology& topology);

}  // namespace rackrail::test
