#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "topology/readers/nccl_cluster.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

using Role = PciDevice::Role;

/// Devices of a role in the order that ranks and rails follow: as the file numbers them, else by
/// bus id, which is the order in which CUDA counts equal GPUs.
std::vector<std::size_t> ordered(const NcclMachine& machine, Role role) {
  std::vector<std::size_t> list;
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    if (machine.devices[i].role != role) continue;
    list.push_back(i);
    if (machine.devices[i].number) numbers.push_back(*machine.devices[i].number);
  }
  std::sort(numbers.begin(), numbers.end());
  const bool is_numbered = numbers.size() == list.size() &&
                           std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end();
  std::stable_sort(list.begin(), list.end(), [&](std::size_t a, std::size_t b) {
    const PciDevice& x = machine.devices[a];
    const PciDevice& y = machine.devices[b];
    return is_numbered ? *x.number < *y.number : x.bus_id < y.bus_id;
  });
  return list;
}

/// Builds one copy of a settled machine.
class MachineBuilder {
 public:
  MachineBuilder(Topology& topology, const HostPlace& place, const NcclMachine& machine,
                 const Overlay& overlay)
      : topology_(topology),
        place_(place),
        machine_(machine),
        overlay_(overlay),
        nodes_(machine.devices.size()) {}

  std::vector<Port> build() {
    const std::vector<std::size_t> gpus = ordered(machine_, Role::kGpu);
    const std::vector<std::size_t> nics = ordered(machine_, Role::kNic);
    for (std::size_t i = 0; i < gpus.size(); ++i) add_gpu(gpus[i], i);
    add_cpus();
    for (std::size_t i = 0; i < nics.size(); ++i) add_part(nics[i], NodeKind::kNic, "nic", i);
    for (std::size_t i = 0, bridges = 0; i < nodes_.size(); ++i) {
      // Devices of other kinds may still have GPUs below them.
      const bool has_children = std::any_of(machine_.devices.begin(), machine_.devices.end(),
                                            [i](const PciDevice& d) { return d.parent == i; });
      if (!nodes_[i] && has_children) add_part(i, NodeKind::kPciSwitch, "pcie", bridges++);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]) join_to_parent(i);
    }
    add_gpu_links(gpus);
    std::vector<Port> ports;
    ports.reserve(nics.size());
    for (const std::size_t nic : nics) {
      ports.push_back(port_of(nic));
      ports.back().nic = ports.size() - 1;
    }
    return ports;
  }

 private:
  Node part(NodeKind kind, const char* prefix, std::size_t number) const {
    Node node;
    node.name = fmt::format("{}{}.{}", prefix, place_.number, number);
    node.kind = kind;
    node.host = place_.host;
    node.rack = place_.rack;
    return node;
  }

  void add_gpu(std::size_t device, std::size_t number) {
    Node node = part(NodeKind::kGpu, "gpu", number);
    node.device_class = machine_.devices[device].device_class;
    node.memory = overlay_.memory;
    node.figures = overlay_.figures;
    node.host_staging = overlay_.host_staging;
    nodes_[device] = topology_.add_node(std::move(node));
    topology_.add_rank(*nodes_[device]);
  }

  void add_part(std::size_t device, NodeKind kind, const char* prefix, std::size_t number) {
    nodes_[device] = topology_.add_node(part(kind, prefix, number));
  }

  void add_cpus() {
    for (std::size_t i = 0; i < machine_.cpus.size(); ++i) {
      cpus_.push_back(topology_.add_node(part(NodeKind::kCpu, "cpu", i)));
      for (std::size_t j = 0; j < i; ++j) {
        join(cpus_[j], cpus_[i], machine_.socket_rate, kSocketLatency, LinkKind::kSocket, "socket");
      }
    }
  }

  void join(NodeId a, NodeId b, Bandwidth rate, Duration latency, LinkKind kind, const char* tier) {
    Link link;
    link.from = a;
    link.to = b;
    link.bandwidth = rate;
    link.latency = latency;
    link.kind = kind;
    link.tier = tier;
    topology_.add_duplex_link(std::move(link));
  }

  void join_to_parent(std::size_t i) {
    const PciDevice& device = machine_.devices[i];
    const NodeId parent = device.parent ? *nodes_[*device.parent] : cpus_[device.cpu];
    const Duration latency = overlay_.pcie ? overlay_.pcie->latency : kPcieLatency;
    const Bandwidth rate = device.rate.value_or(default_pcie_lane_rate() * 16);
    join(*nodes_[i], parent, rate, latency, LinkKind::kPcie, "pcie");
    if (device.cpu_link) {
      join(*nodes_[i], cpus_[device.cpu], *device.cpu_link, kNvlinkLatency, LinkKind::kNvlink,
           "c2c");
    }
  }

  NodeId nvswitch(std::size_t island = 0) {
    const auto found = nvswitches_.find(island);
    if (found != nvswitches_.end()) return found->second;
    Node node = part(NodeKind::kNvSwitch, "nvswitch", island);
    if (island == 0) node.name = fmt::format("nvswitch{}", place_.number);
    node.multicasts = overlay_.nvlink && overlay_.nvlink->multicasts;
    node.reduces = overlay_.nvlink && overlay_.nvlink->reduces;
    return nvswitches_.emplace(island, topology_.add_node(std::move(node))).first->second;
  }

  // Each end of a direct link lists it; a file may lack one of the two.
  void add_gpu_links(const std::vector<std::size_t>& gpus) {
    if (overlay_.nvlink) {
      add_overlay_fabric(gpus, *overlay_.nvlink);
      return;
    }
    std::map<std::string, std::size_t> by_bus_id;
    for (const std::size_t gpu : gpus) by_bus_id.emplace(machine_.devices[gpu].bus_id, gpu);
    std::map<std::pair<std::size_t, std::size_t>, Bandwidth> direct;
    for (const std::size_t gpu : gpus) {
      Bandwidth to_switch(0);
      std::size_t island = 0;
      for (const GpuLink& link : machine_.devices[gpu].links) {
        const Bandwidth all = link.each.value_or(default_nvlink_rate()) * link.count;
        if (link.to == GpuLink::To::kSwitch) {
          to_switch = to_switch + all;
          island = link.island;
        } else if (const auto peer = by_bus_id.find(link.target); peer != by_bus_id.end()) {
          Bandwidth& rate = direct[std::minmax(gpu, peer->second)];
          rate = std::max(rate, all);
        }
      }
      if (to_switch > Bandwidth(0)) {
        join(*nodes_[gpu], nvswitch(island), to_switch, kNvswitchLatency, LinkKind::kNvlink,
             "nvlink");
      }
    }
    for (const auto& [ends, rate] : direct) {
      join(*nodes_[ends.first], *nodes_[ends.second], rate, kNvlinkLatency, LinkKind::kNvlink,
           "nvlink");
    }
  }

  void add_overlay_fabric(const std::vector<std::size_t>& gpus, const GpuFabric& fabric) {
    for (std::size_t i = 0; i < gpus.size() && gpus.size() > 1; ++i) {
      if (fabric.is_switched) {
        join(*nodes_[gpus[i]], nvswitch(), fabric.bandwidth, fabric.latency, LinkKind::kNvlink,
             "nvlink");
      }
      for (std::size_t j = 0; j < i && !fabric.is_switched; ++j) {
        join(*nodes_[gpus[j]], *nodes_[gpus[i]],
             scaled(fabric.bandwidth, 1.0 / static_cast<double>(gpus.size() - 1)), fabric.latency,
             LinkKind::kNvlink, "nvlink");
      }
    }
  }

  Port port_of(std::size_t nic) const {
    LinkClass link;
    if (overlay_.nic) {
      link = *overlay_.nic;
    } else {
      link.bandwidth = machine_.devices[nic].port_rate.value_or(Bandwidth(0));
      link.latency = kNicLatency;
    }
    // By its name there, or where that is another now, by its place on the bus.
    const PciDevice& device = machine_.devices[nic];
    const bool has_both = !device.names.empty() && !device.bus_id.empty();
    return {*nodes_[nic], link, device.names + (has_both ? " " : "") + device.bus_id};
  }

  Topology& topology_;
  const HostPlace& place_;
  const NcclMachine& machine_;
  const Overlay& overlay_;
  std::vector<std::optional<NodeId>> nodes_;  // by device
  std::vector<NodeId> cpus_;
  std::map<std::size_t, NodeId> nvswitches_;  // by island
};

}  // namespace

std::vector<Port> add_machine(Topology& topology, const HostPlace& place,
                              const NcclMachine& machine, const Overlay& overlay) {
  return MachineBuilder(topology, place, machine, overlay).build();
}

}  // namespace rackrail::topology
