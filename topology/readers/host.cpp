// The inside of a machine: GPU – PCIe switch – NIC, PCIe switch – CPU – CPU, GPU – NVSwitch.
//
// PCIe and switches are cut-through: a link adds its latency, the narrowest one gives the rate.
#include <fmt/format.h>

#include <optional>
#include <span>

#include "topology/readers/fabric.hpp"

namespace rackrail::topology {
namespace {

class HostBuilder {
 public:
  HostBuilder(Topology& topology, const HostPlace& place, const NodeType& type)
      : topology_(topology), place_(place), type_(type) {}

  std::vector<Port> build() {
    std::vector<Port> ports = build_parts();
    if (type_.cores > 0) add_processor();
    return ports;
  }

 private:
  std::vector<Port> build_parts() {
    if (type_.is_rank_itself) {
      const NodeId host = add_rank_node(NodeKind::kHost, place_.host);
      std::vector<Port> ports;
      for (int i = 0; i < type_.nics; ++i) add_ports(host, i, ports);
      return ports;
    }
    const int switches = (type_.gpus + type_.gpus_per_pcie_switch - 1) / type_.gpus_per_pcie_switch;
    std::vector<NodeId> gpus;
    gpus.reserve(static_cast<std::size_t>(type_.gpus));
    for (int i = 0; i < type_.gpus; ++i) {
      gpus.push_back(add_rank_node(NodeKind::kGpu, fmt::format("gpu{}.{}", place_.number, i)));
    }
    std::vector<NodeId> cpus;
    for (int i = 0; i < type_.sockets; ++i) {
      cpus.push_back(add_part(NodeKind::kCpu, "cpu", i));
      for (int j = 0; j < i; ++j) {
        join(cpus[static_cast<std::size_t>(j)], cpus.back(), type_.socket_link, LinkKind::kSocket,
             "socket");
      }
    }
    std::vector<NodeId> pcie;
    for (int i = 0; i < switches; ++i) {
      pcie.push_back(add_part(NodeKind::kPciSwitch, "pcie", i));
      join(pcie.back(), cpus[static_cast<std::size_t>(i * type_.sockets / switches)], type_.pcie,
           LinkKind::kPcie, "pcie");
    }
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      join(gpus[i], pcie[i / static_cast<std::size_t>(type_.gpus_per_pcie_switch)], type_.pcie,
           LinkKind::kPcie, "pcie");
    }
    if (type_.nvlink) add_gpu_fabrics(gpus, *type_.nvlink);
    std::vector<Port> ports;
    for (int i = 0; i < type_.nics; ++i) {
      const NodeId nic = add_part(NodeKind::kNic, "nic", i);
      join(nic, pcie[static_cast<std::size_t>(i * switches / type_.nics)], type_.pcie,
           LinkKind::kPcie, "pcie");
      add_ports(nic, i, ports);
    }
    return ports;
  }

  void add_ports(NodeId node, int nic, std::vector<Port>& ports) const {
    const auto number = static_cast<std::size_t>(nic);
    const std::string adapter = type_.nic_devices.empty() ? "" : type_.nic_devices[number];
    for (int i = 0; i < type_.ports_per_nic; ++i) {
      ports.push_back({node, type_.nic_link, adapter, number});
    }
  }

  // All ranks of the machine share its cores: a link that no message passes, of which each core is
  // an equal part (sim/routing.hpp). Only shares of it matter, so its rate is any.
  void add_processor() {
    constexpr Bandwidth kCore(1'000'000'000);
    Link cores;
    cores.from = add_part(NodeKind::kSwitch, "processor", 0);
    cores.to = add_part(NodeKind::kSwitch, "processor", 1);
    cores.bandwidth = kCore * type_.cores;
    cores.kind = LinkKind::kShared;
    cores.tier = "cores";
    cores.cpu_share = 1.0 / type_.cores;
    const LinkId processor = topology_.add_link(std::move(cores));
    for (const Rank rank : ranks_) topology_.set_processor(rank, processor);
  }

  NodeId add_rank_node(NodeKind kind, std::string name) {
    Node node;
    node.name = std::move(name);
    node.kind = kind;
    node.host = place_.host;
    node.rack = place_.rack;
    node.device_class = type_.device_class;
    node.memory = type_.memory;
    node.figures = type_.figures;
    node.host_staging = type_.host_staging;
    const NodeId id = topology_.add_node(std::move(node));
    ranks_.push_back(topology_.add_rank(id));
    return id;
  }

  NodeId add_part(NodeKind kind, const char* prefix, int i) {
    Node node;
    node.name = fmt::format("{}{}.{}", prefix, place_.number, i);
    node.kind = kind;
    node.host = place_.host;
    node.rack = place_.rack;
    return topology_.add_node(std::move(node));
  }

  void join(NodeId a, NodeId b, const LinkClass& link, LinkKind kind, const char* tier) {
    Link l;
    l.from = a;
    l.to = b;
    l.bandwidth = link.bandwidth;
    l.latency = link.latency;
    l.kind = kind;
    l.tier = tier;
    topology_.add_duplex_link(std::move(l));
  }

  void add_gpu_fabrics(const std::vector<NodeId>& gpus, const GpuFabric& fabric) {
    if (fabric.hosts > 1) {
      join_to_switch(gpus, shared_switch(fabric), fabric);
      return;
    }
    const std::size_t size = gpus.size() / static_cast<std::size_t>(fabric.islands);
    for (std::size_t i = 0; size > 1 && i * size < gpus.size(); ++i) {
      const std::span<const NodeId> island = std::span(gpus).subspan(i * size, size);
      const std::string name = fabric.islands == 1 ? fmt::format("nvswitch{}", place_.number)
                                                   : fmt::format("nvswitch{}.{}", place_.number, i);
      if (fabric.is_switched) {
        join_to_switch(island, add_gpu_switch(name, place_.host, fabric), fabric);
      } else {
        join_all(island, fabric);
      }
    }
  }

  /// Of all hosts of the domain, which the first of them adds.
  NodeId shared_switch(const GpuFabric& fabric) {
    const int first = place_.number - place_.in_rack % fabric.hosts;
    const std::string name = fmt::format("nvswitch{}", first);
    const std::optional<NodeId> found = topology_.find_node(name);
    return found ? *found : add_gpu_switch(name, "", fabric);
  }

  NodeId add_gpu_switch(const std::string& name, const std::string& host, const GpuFabric& fabric) {
    Node node;
    node.name = name;
    node.kind = NodeKind::kNvSwitch;
    node.host = host;
    node.rack = place_.rack;
    node.multicasts = fabric.multicasts;
    node.reduces = fabric.reduces;
    return topology_.add_node(std::move(node));
  }

  // All NVSwitches of a fabric act as one, since each GPU stripes over all of them.
  void join_to_switch(std::span<const NodeId> gpus, NodeId hub, const GpuFabric& fabric) {
    for (const NodeId gpu : gpus) {
      join(gpu, hub, link_of(fabric, 1), LinkKind::kNvlink, "nvlink");
    }
  }

  /// Without a switch, a GPU's bandwidth is divided evenly among its peers.
  void join_all(std::span<const NodeId> gpus, const GpuFabric& fabric) {
    const LinkClass link = link_of(fabric, 1.0 / static_cast<double>(gpus.size() - 1));
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        join(gpus[j], gpus[i], link, LinkKind::kNvlink, "nvlink");
      }
    }
  }

  static LinkClass link_of(const GpuFabric& fabric, double share) {
    return {.bandwidth = scaled(fabric.bandwidth, share),
            .latency = fabric.latency,
            .overhead = {},
            .receive_overhead = {},
            .flow_bandwidth = {}};
  }

  Topology& topology_;
  const HostPlace& place_;
  const NodeType& type_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::vector<Port> add_host_of_type(Topology& topology, const HostPlace& place,
                                   const NodeType& type) {
  return HostBuilder(topology, place, type).build();
}

}  // namespace rackrail::topology
