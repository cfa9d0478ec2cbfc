// What a hierarchical cluster file or an overlay says, read and checked but not yet built: classes
// of links and devices, kinds of machines, racks, and the wiring between them.
//
// docs/reference/cluster-file.md is the reference of the format for people who write such files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config_tree.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "topology/device_figures.hpp"

namespace rackrail::topology {

/// A kind of cable or path with what it costs.
struct LinkClass {
  Bandwidth bandwidth;
  Duration latency;
  Duration overhead;          ///< per message at its sender
  double cpu_share = 0;       ///< of the host's cores at full rate
  Duration receive_overhead;  ///< per message at its receiver
  Bandwidth flow_bandwidth;   ///< most that one message takes; 0: all
};

/// Named link classes: the presets `tcp` and `rdma`, and what the file adds or replaces.
using LinkClasses = std::map<std::string, LinkClass>;
LinkClasses read_link_classes(const ConfigValue* section);

/// A link class by its name, with the properties beside `link` replacing those of the class:
/// `{ link: tcp, bandwidth: 10 Gbit/s }`, or all properties without a class.
LinkClass read_link(const ConfigValue& value, const LinkClasses& classes);
/// The same, but what `value` does not say is as in `otherwise`.
LinkClass read_link_over(const ConfigValue& value, const LinkClasses& classes,
                         const LinkClass& otherwise);

/// What the file says about a device class: its memory, or all its figures, or both.
struct DeviceEntry {
  std::optional<Bytes> memory;
  std::shared_ptr<const DeviceFigures> figures;
};
/// By name, in any case.
using DeviceEntries = std::map<std::string, DeviceEntry, LessInAnyCase>;
DeviceEntries read_device_classes(const ConfigValue* section);

/// GPUs joined to each other inside a machine.
struct GpuFabric {
  Bandwidth bandwidth;  ///< of one GPU in each direction, to all others together
  Duration latency;     ///< of one link (GPU to switch, or GPU to GPU)
  bool is_switched = true;
  bool multicasts = false;
  bool reduces = false;
  int hosts = 1;    ///< so many consecutive hosts of a rack share one switch
  int islands = 1;  ///< so many equal groups of a host's GPUs, each joined by itself
};
GpuFabric read_gpu_fabric(const ConfigValue& value);
/// The same without `hosts` and `islands`, for files that say themselves which GPUs are joined.
GpuFabric read_gpu_fabric_of_one_host(const ConfigValue& value);

/// A kind of machine.
struct NodeType {
  bool is_rank_itself = false;  ///< the host is one rank; no parts inside
  std::string device_class;
  std::optional<Bytes> memory;                   ///< per rank
  std::shared_ptr<const DeviceFigures> figures;  ///< Node::figures of each rank
  Bandwidth host_staging;                        ///< Node::host_staging of each rank
  int gpus = 0;
  std::optional<GpuFabric> nvlink;
  LinkClass pcie;  ///< GPU, NIC and CPU to the PCIe switch
  int gpus_per_pcie_switch = 1;
  int sockets = 1;
  LinkClass socket_link;
  int nics = 0;                          ///< none: the machine can only be alone
  int ports_per_nic = 1;                 ///< links of each to the network
  LinkClass nic_link;                    ///< one port of a NIC (or host) to its ToR
  std::vector<std::string> nic_devices;  ///< Link::adapter of each; empty if nobody said
  int cores = 0;                         ///< that its ranks share; 0 if nobody said
};
NodeType read_node_type(const ConfigValue& value, const LinkClasses& links,
                        const DeviceEntries& devices);

/// Identical racks.
struct RackGroup {
  int count = 1;
  int hosts = 1;     ///< per rack
  std::string type;  ///< of the machines; empty where there is only one
};

/// A tier of switches above another: how many, and how each is joined to each below.
struct SwitchTier {
  int count = 1;  ///< in all; per pod for the spines of a fat tree
  LinkClass link;
  int cables = 1;                          ///< parallel ones between two switches
  std::optional<double> oversubscription;  ///< replaces the rate: downward / upward capacity
  std::string tier;                        ///< name of the links' tier
  bool multicasts = false;
  bool reduces = false;
};

enum class Wiring : std::uint8_t {
  kSingleSwitch,   ///< one rack with one switch; nothing above
  kLeafSpine,      ///< one ToR per rack, each joined to every switch of one tier above
  kRailOptimised,  ///< in each rack one leaf per NIC number, each joined to every switch above
  kFatTree,        ///< ToRs to the spines of their pod, spines to the cores of their plane
};

struct Network {
  Wiring wiring = Wiring::kSingleSwitch;
  std::optional<SwitchTier> spine;
  std::optional<SwitchTier> core;
  int racks_per_pod = 1;
  /// Separate networks: leaves and the switches above them. Ports go to them in turn.
  int planes = 1;
  bool tor_multicasts = false;
  bool tor_reduces = false;
};

std::vector<RackGroup> read_racks(const ConfigValue& value);
/// `network` may be null: one rack needs none.
Network read_network(const ConfigValue* network, const LinkClasses& links,
                     const std::vector<RackGroup>& racks, const ConfigValue& root);

}  // namespace rackrail::topology
