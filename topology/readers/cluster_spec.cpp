#include "topology/readers/cluster_spec.hpp"

#include <fmt/format.h>

namespace rackrail::topology {
namespace {

constexpr std::int64_t kMostRacks = 4096;
constexpr std::int64_t kMostHostsPerRack = 4096;
constexpr std::int64_t kMostHosts = 16384;
constexpr std::int64_t kMostSwitches = 1024;
constexpr std::int64_t kMostGpus = 1024;  // and NICs, of a machine
constexpr std::int64_t kMostPorts = 16;
constexpr std::int64_t kMostPlanes = 64;
constexpr std::int64_t kMostCores = 4096;

// TCP and RDMA as measured between two hosts of a current cluster. The overheads are those of a
// small message through the kernel's sockets, and of posting a work request to an RDMA adapter.
const LinkClasses& preset_link_classes() {
  static const LinkClasses presets{
      {"tcp", {Bandwidth(12'400'000'000), 150_us, 5_us, 0.35, {}, {}}},
      {"rdma", {Bandwidth(56'800'000'000), Duration(8'200'000), 300_ns, 0, {}, {}}}};
  return presets;
}

int small_count(const ConfigValue& value, std::int64_t least, std::int64_t most) {
  return static_cast<int>(value.count(least, most));
}

int count_or(const ConfigValue& map, std::string_view key, std::int64_t least, std::int64_t most,
             int otherwise) {
  const ConfigValue* value = map.find(key);
  return value != nullptr ? small_count(*value, least, most) : otherwise;
}

bool flag_or_no(const ConfigValue& map, std::string_view key) {
  const ConfigValue* value = map.find(key);
  return value != nullptr && value->flag();
}

std::string known_names(const LinkClasses& classes) {
  std::string names;
  for (const auto& [name, link] : classes) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

const LinkClass& class_named(const ConfigValue& name, const LinkClasses& classes) {
  const auto found = classes.find(name.name());
  if (found == classes.end()) name.fail("a link class: " + known_names(classes));
  return found->second;
}

/// The properties of a link that stand in `map`, over those of `base`. Bandwidth and latency must
/// come from somewhere.
LinkClass with_properties(const ConfigValue& map, const LinkClass* base) {
  LinkClass link = base != nullptr ? *base : LinkClass{};
  if (base == nullptr || map.find("bandwidth") != nullptr) {
    link.bandwidth = map.require("bandwidth").bandwidth();
  }
  if (base == nullptr || map.find("latency") != nullptr) {
    link.latency = map.require("latency").duration();
  }
  if (const ConfigValue* v = map.find("overhead")) link.overhead = v->duration();
  if (const ConfigValue* v = map.find("receive_overhead")) link.receive_overhead = v->duration();
  if (const ConfigValue* v = map.find("flow_bandwidth")) link.flow_bandwidth = v->bandwidth();
  if (const ConfigValue* v = map.find("cpu_share")) link.cpu_share = v->share();
  return link;
}

LinkClass link_of(const ConfigValue& map, const LinkClasses& classes) {
  const ConfigValue* name = map.find("link");
  return with_properties(map, name != nullptr ? &class_named(*name, classes) : nullptr);
}

SwitchTier read_switch_tier(const ConfigValue& value, const LinkClasses& links,
                            const char* tier_name) {
  value.allow_only({"count", "link", "bandwidth", "latency", "cables", "oversubscription", "tier",
                    "multicasts", "reduces"});
  SwitchTier tier;
  tier.count = small_count(value.require("count"), 1, kMostSwitches);
  if (const ConfigValue* ratio = value.find("oversubscription")) {
    for (const char* key : {"cables", "bandwidth"}) {
      if (const ConfigValue* other = value.find(key)) {
        other->fail(fmt::format("'{}' and 'oversubscription'", key),
                    "one of the two: each gives the rate of the uplinks");
      }
    }
    tier.oversubscription = ratio->ratio(0.01, 1000);
    if (const ConfigValue* name = value.find("link")) {
      tier.link = class_named(*name, links);
    }
    if (const ConfigValue* v = value.find("latency")) {
      tier.link.latency = v->duration();
    } else if (value.find("link") == nullptr) {
      value.fail("neither 'latency' nor 'link'", "the latency of the uplinks");
    }
  } else {
    tier.link = link_of(value, links);
    tier.cables = count_or(value, "cables", 1, kMostSwitches, 1);
  }
  const ConfigValue* name = value.find("tier");
  tier.tier = name != nullptr ? name->name() : tier_name;
  tier.multicasts = flag_or_no(value, "multicasts");
  tier.reduces = flag_or_no(value, "reduces");
  return tier;
}

RackGroup read_rack_group(const ConfigValue& value) {
  value.allow_only({"count", "hosts", "type"});
  RackGroup group;
  group.count = count_or(value, "count", 1, kMostRacks, 1);
  group.hosts = small_count(value.require("hosts"), 1, kMostHostsPerRack);
  if (const ConfigValue* type = value.find("type")) group.type = type->name();
  return group;
}

}  // namespace

LinkClasses read_link_classes(const ConfigValue* section) {
  LinkClasses classes = preset_link_classes();
  if (section == nullptr) return classes;
  for (const auto& [name, value] : section->members()) {
    value.allow_only({"link", "bandwidth", "latency", "overhead", "receive_overhead",
                      "flow_bandwidth", "cpu_share"});
    const ConfigValue* base = value.find("link");
    const auto preset = classes.find(name);
    if (base != nullptr && preset == classes.end() && base->name() == name) {
      base->fail("'" + name + "' itself", "another link class: " + known_names(classes));
    }
    // A class of a preset's name replaces what it names and keeps the rest.
    classes[name] = base == nullptr && preset != classes.end()
                        ? with_properties(value, &preset->second)
                        : link_of(value, classes);
  }
  return classes;
}

namespace {

void allow_link_keys(const ConfigValue& value) {
  value.allow_only({"link", "bandwidth", "latency", "overhead", "receive_overhead",
                    "flow_bandwidth", "cpu_share"});
}

}  // namespace

LinkClass read_link(const ConfigValue& value, const LinkClasses& classes) {
  allow_link_keys(value);
  return link_of(value, classes);
}

LinkClass read_link_over(const ConfigValue& value, const LinkClasses& classes,
                         const LinkClass& otherwise) {
  allow_link_keys(value);
  const ConfigValue* name = value.find("link");
  return with_properties(value, name != nullptr ? &class_named(*name, classes) : &otherwise);
}

DeviceEntries read_device_classes(const ConfigValue* section) {
  DeviceEntries entries;
  if (section == nullptr) return entries;
  for (const auto& [name, value] : section->members()) {
    value.allow_only({"memory", "source", "matrix_tflops", "memory_bandwidth", "codec_memory",
                      "launch", "wake"});
    DeviceEntry entry;
    if (has_device_figures(value)) {
      entry.figures = std::make_shared<const DeviceFigures>(read_device_figures(value));
      entry.memory = entry.figures->memory_size;
    } else {
      entry.memory = value.require("memory").bytes();
    }
    if (!entries.emplace(name, std::move(entry)).second) {
      value.fail(fmt::format("'{}' twice, in large and small letters", name), "each class once");
    }
  }
  return entries;
}

GpuFabric read_gpu_fabric(const ConfigValue& value) {
  value.allow_only(
      {"bandwidth", "latency", "switched", "multicasts", "reduces", "hosts", "islands"});
  GpuFabric fabric;
  fabric.bandwidth = value.require("bandwidth").bandwidth();
  fabric.latency = value.require("latency").duration();
  const ConfigValue* switched = value.find("switched");
  fabric.is_switched = switched == nullptr || switched->flag();
  fabric.multicasts = flag_or_no(value, "multicasts");
  fabric.reduces = flag_or_no(value, "reduces");
  if (!fabric.is_switched && (fabric.multicasts || fabric.reduces)) {
    value.fail("a GPU fabric without a switch that multicasts or reduces", "'switched: true'");
  }
  fabric.hosts = count_or(value, "hosts", 1, kMostHostsPerRack, 1);
  fabric.islands = count_or(value, "islands", 1, kMostGpus, 1);
  if (fabric.hosts > 1 && !fabric.is_switched) {
    value.require("hosts").fail("several hosts on GPU links without a switch", "'switched: true'");
  }
  if (fabric.hosts > 1 && fabric.islands > 1) {
    value.require("islands").fail("'hosts' and 'islands'", "one of the two");
  }
  return fabric;
}

GpuFabric read_gpu_fabric_of_one_host(const ConfigValue& value) {
  GpuFabric fabric = read_gpu_fabric(value);
  for (const char* key : {"hosts", "islands"}) {
    if (const ConfigValue* found = value.find(key)) {
      found->fail(fmt::format("'nvlink.{}' in an overlay", key), "it in a cluster file only");
    }
  }
  return fabric;
}

namespace {

void read_nics(const ConfigValue& nics, const LinkClasses& links, NodeType& type) {
  nics.allow_only({"count", "ports", "devices", "link", "bandwidth", "latency", "overhead",
                   "receive_overhead", "flow_bandwidth", "cpu_share"});
  type.nics = count_or(nics, "count", 1, kMostGpus, 1);
  type.ports_per_nic = count_or(nics, "ports", 1, kMostPorts, 1);
  type.nic_link = link_of(nics, links);
  if (const ConfigValue* names = nics.find("devices")) {
    for (const ConfigValue& device : names->elements()) {
      type.nic_devices.push_back(device.text());
    }
    if (type.nic_devices.size() != static_cast<std::size_t>(type.nics)) {
      names->fail(fmt::format("a list of {}, one for each NIC", type.nics));
    }
  }
}

}  // namespace

NodeType read_node_type(const ConfigValue& value, const LinkClasses& links,
                        const DeviceEntries& devices) {
  value.allow_only({"rank", "device_class", "memory", "host_staging", "cores", "gpus", "nvlink",
                    "pcie", "sockets", "nics"});
  NodeType type;
  if (const ConfigValue* device = value.find("device_class")) {
    type.device_class = device->name();
    const auto found = devices.find(type.device_class);
    if (found != devices.end()) {
      type.memory = found->second.memory;
      type.figures = found->second.figures;
    }
  }
  if (const ConfigValue* memory = value.find("memory")) type.memory = memory->bytes();
  if (const ConfigValue* rate = value.find("host_staging")) type.host_staging = rate->bandwidth();
  type.cores = count_or(value, "cores", 1, kMostCores, 0);

  const ConfigValue* rank = value.find("rank");
  if (rank != nullptr && rank->text() != "host" && rank->text() != "gpu") {
    rank->fail("host or gpu");
  }
  type.is_rank_itself = rank != nullptr && rank->text() == "host";
  if (const ConfigValue* nics = type.is_rank_itself ? &value.require("nics") : value.find("nics")) {
    read_nics(*nics, links, type);
  }
  if (type.is_rank_itself) {
    for (const char* key : {"gpus", "host_staging", "nvlink", "pcie", "sockets"}) {
      if (const ConfigValue* part = value.find(key)) {
        part->fail(fmt::format("'{}' in a host that is one rank", key), "'rank: gpu'");
      }
    }
    return type;
  }

  type.gpus = small_count(value.require("gpus"), 1, kMostGpus);
  if (const ConfigValue* nvlink = value.find("nvlink")) {
    type.nvlink = read_gpu_fabric(*nvlink);
    if (type.nvlink->islands > 1 &&
        (type.gpus % type.nvlink->islands != 0 || type.gpus == type.nvlink->islands)) {
      nvlink->require("islands").fail(
          fmt::format("a divisor of the {} GPUs that leaves several to each", type.gpus));
    }
  }
  const ConfigValue& pcie = value.require("pcie");
  pcie.allow_only({"link", "bandwidth", "latency", "gpus_per_switch"});
  type.pcie = link_of(pcie, links);
  type.gpus_per_pcie_switch = count_or(pcie, "gpus_per_switch", 1, kMostGpus, 1);
  if (const ConfigValue* sockets = value.find("sockets")) {
    sockets->allow_only({"count", "link", "bandwidth", "latency"});
    type.sockets = small_count(sockets->require("count"), 1, 16);
    type.socket_link = type.sockets > 1 ? link_of(*sockets, links) : LinkClass{};
  }
  return type;
}

std::vector<RackGroup> read_racks(const ConfigValue& value) {
  std::vector<RackGroup> groups;
  if (value.is_list()) {
    for (const ConfigValue& element : value.elements()) {
      groups.push_back(read_rack_group(element));
    }
  } else {
    groups.push_back(read_rack_group(value));
  }
  std::int64_t racks = 0;
  std::int64_t hosts = 0;
  for (const RackGroup& group : groups) {
    racks += group.count;
    hosts += std::int64_t{group.count} * group.hosts;
  }
  if (groups.empty() || racks > kMostRacks || hosts > kMostHosts) {
    value.fail(fmt::format("{} racks with {} hosts", racks, hosts),
               fmt::format("1 to {} racks and up to {} hosts", kMostRacks, kMostHosts));
  }
  return groups;
}

namespace {

void read_planes(const ConfigValue& planes, const ConfigValue* upper, Network& network) {
  network.planes = small_count(planes, 1, kMostPlanes);
  if (network.planes == 1) return;
  if (network.wiring != Wiring::kLeafSpine && network.wiring != Wiring::kRailOptimised) {
    planes.fail("'planes' with another wiring", "'planes' with leaf-spine or rail-optimised only");
  }
  const SwitchTier& tier = network.spine ? *network.spine : *network.core;
  if (tier.count % network.planes != 0) {
    upper->require("count").fail(fmt::format("a multiple of the {} planes", network.planes));
  }
}

}  // namespace

Network read_network(const ConfigValue* network, const LinkClasses& links,
                     const std::vector<RackGroup>& racks, const ConfigValue& root) {
  int rack_count = 0;
  for (const RackGroup& group : racks) rack_count += group.count;
  Network result;
  if (network == nullptr) {
    if (rack_count > 1)
      root.fail(fmt::format("{} racks and no 'network'", rack_count), "'network'");
    return result;
  }
  network->allow_only({"wiring", "planes", "tor", "spine", "core", "pod"});
  if (const ConfigValue* tor = network->find("tor")) {
    tor->allow_only({"multicasts", "reduces"});
    result.tor_multicasts = flag_or_no(*tor, "multicasts");
    result.tor_reduces = flag_or_no(*tor, "reduces");
  }
  const ConfigValue& wiring = network->require("wiring");
  static const std::map<std::string, Wiring, std::less<>> kWirings{
      {"single-switch", Wiring::kSingleSwitch},
      {"leaf-spine", Wiring::kLeafSpine},
      {"rail-optimised", Wiring::kRailOptimised},
      {"rail-optimized", Wiring::kRailOptimised},
      {"fat-tree", Wiring::kFatTree}};
  const auto known = kWirings.find(wiring.text());
  if (known == kWirings.end()) {
    wiring.fail("single-switch, leaf-spine, rail-optimised or fat-tree");
  }
  result.wiring = known->second;
  const bool is_fat_tree = result.wiring == Wiring::kFatTree;
  const bool is_single = result.wiring == Wiring::kSingleSwitch;
  const ConfigValue* spine = network->find("spine");
  const ConfigValue* core = network->find("core");
  const ConfigValue* pod = network->find("pod");
  if (is_single && rack_count > 1) {
    wiring.fail(fmt::format("one switch for {} racks", rack_count), "one rack, or another wiring");
  }
  for (const ConfigValue* tier : {spine, core}) {
    if (is_single && tier != nullptr) {
      tier->fail("a tier above a single switch", "none, or another wiring");
    }
  }
  if (is_fat_tree) {
    network->require("spine");
    network->require("core");
    const ConfigValue& pods = network->require("pod");
    pods.allow_only({"racks"});
    result.racks_per_pod = small_count(pods.require("racks"), 1, kMostRacks);
    if (rack_count % result.racks_per_pod != 0) {
      pods.require("racks").fail(fmt::format("a divisor of the {} racks", rack_count));
    }
  } else if (pod != nullptr) {
    pod->fail(fmt::format("'pod' with wiring {}", wiring.text()), "'pod' with fat-tree only");
  } else if (!is_single && (spine != nullptr) == (core != nullptr)) {
    network->fail(spine != nullptr ? "both 'spine' and 'core'" : "neither 'spine' nor 'core'",
                  fmt::format("one tier above the leaves with wiring {}", wiring.text()));
  }
  const char* lower = result.wiring == Wiring::kRailOptimised ? "spine" : "rack-uplink";
  if (spine != nullptr) result.spine = read_switch_tier(*spine, links, lower);
  if (core != nullptr) result.core = read_switch_tier(*core, links, is_fat_tree ? "core" : lower);
  if (is_fat_tree && result.core->count % result.spine->count != 0) {
    core->require("count").fail(
        fmt::format("a multiple of the {} spines of a pod", result.spine->count));
  }
  if (const ConfigValue* planes = network->find("planes")) {
    read_planes(*planes, spine != nullptr ? spine : core, result);
  }
  return result;
}

}  // namespace rackrail::topology
