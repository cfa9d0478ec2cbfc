// The inside of a machine: GPU – PCIe switch – NIC, PCIe switch – CPU – CPU, GPU – NVSwitch.
//
// PCIe and switches are cut-through: a link adds its latency, the narrowest one gives the rate.
#include <fmt/format.h>

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
      for (int i = 0; i < type_.nics; ++i) {
        ports.push_back({host, type_.nic_link, adapter(i)});
      }
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
    if (type_.nvlink && gpus.size() > 1) add_gpu_fabric(gpus, *type_.nvlink);
    std::vector<Port> ports;
    for (int i = 0; i < type_.nics; ++i) {
      const NodeId nic = add_part(NodeKind::kNic, "nic", i);
      join(nic, pcie[static_cast<std::size_t>(i * switches / type_.nics)], type_.pcie,
           LinkKind::kPcie, "pcie");
      ports.push_back({nic, type_.nic_link, adapter(i)});
    }
    return ports;
  }

  std::string adapter(int nic) const {
    return type_.nic_devices.empty() ? "" : type_.nic_devices[static_cast<std::size_t>(nic)];
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

  // All NVSwitches of a machine act as one, since each GPU stripes over all of them. Without a
  // switch, a GPU's bandwidth is divided evenly among its peers.
  void add_gpu_fabric(const std::vector<NodeId>& gpus, const GpuFabric& fabric) {
    LinkClass link{.bandwidth = fabric.bandwidth,
                   .latency = fabric.latency,
                   .overhead = {},
                   .receive_overhead = {},
                   .flow_bandwidth = {}};
    if (fabric.is_switched) {
      Node node;
      node.name = fmt::format("nvswitch{}", place_.number);
      node.kind = NodeKind::kNvSwitch;
      node.host = place_.host;
      node.rack = place_.rack;
      node.multicasts = fabric.multicasts;
      node.reduces = fabric.reduces;
      const NodeId hub = topology_.add_node(std::move(node));
      for (const NodeId gpu : gpus) join(gpu, hub, link, LinkKind::kNvlink, "nvlink");
      return;
    }
    link.bandwidth = scaled(fabric.bandwidth, 1.0 / static_cast<double>(gpus.size() - 1));
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        join(gpus[j], gpus[i], link, LinkKind::kNvlink, "nvlink");
      }
    }
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
