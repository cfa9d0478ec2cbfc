// NCCL topology XML → Topology: the machines of the file, as often as the overlay says, joined by
// the network of the overlay.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/nccl_machine.hpp"
#include "topology/readers/nccl_rates.hpp"
#include "topology/readers/overlay.hpp"

namespace rackrail::topology {
namespace {

using Role = PciDevice::Role;

/// Decides everything that the file leaves open, once for all copies of a machine.
class MachineSettler {
 public:
  MachineSettler(std::string file, const Overlay& overlay, std::vector<std::string>& notes)
      : file_(std::move(file)), overlay_(overlay), notes_(notes) {}

  void settle(NcclMachine& machine) {
    apply_roles(machine, overlay_.gpus, Role::kGpu, "gpus");
    apply_roles(machine, overlay_.nics, Role::kNic, "nics");
    drop_repeated(machine);
    require_gpus(machine);
    settle_pcie(machine);
    settle_gpu_links(machine);
    for (PciDevice& device : machine.devices) {
      if (device.role == Role::kGpu && !overlay_.device_class.empty()) {
        device.device_class = overlay_.device_class;
      }
    }
  }

 private:
  void note(std::string text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
      notes_.push_back(std::move(text));
    }
  }

  void apply_roles(NcclMachine& machine, const std::vector<std::string>& bus_ids, Role role,
                   const char* key) const {
    for (const std::string& text : bus_ids) {
      const std::string id = normalised_bus_id(text);
      const auto device = std::find_if(machine.devices.begin(), machine.devices.end(),
                                       [&](const PciDevice& d) { return d.bus_id == id; });
      if (device == machine.devices.end()) {
        throw ConfigError(ErrorContext{file_, fmt::format("overlay, {}", key),
                                       fmt::format("no device '{}'", text),
                                       "bus ids of devices in the file"});
      }
      device->role = role;
    }
  }

  void drop_repeated(NcclMachine& machine) {
    std::map<std::string, std::size_t> first;
    for (PciDevice& device : machine.devices) {
      const bool is_named = device.role == Role::kGpu || device.role == Role::kNic;
      if (!is_named || device.bus_id.empty()) continue;
      if (!first.emplace(device.bus_id, 0).second) {
        note(fmt::format("{}: bus id {} stands there twice; the first one counts", device.where,
                         device.bus_id));
        device.role = Role::kOther;
      }
    }
  }

  void require_gpus(const NcclMachine& machine) {
    const auto count = [&](Role role) {
      return std::count_if(machine.devices.begin(), machine.devices.end(),
                           [role](const PciDevice& d) { return d.role == role; });
    };
    const auto unknown = count(Role::kUnknown);
    if (count(Role::kGpu) == 0) {
      std::string ids;
      for (const PciDevice& device : machine.devices) {
        if (device.role == Role::kUnknown) ids += (ids.empty() ? "" : ", ") + device.bus_id;
      }
      throw ConfigError(ErrorContext{
          file_, "",
          unknown > 0 ? fmt::format("{} devices without a class ({}) and no GPU", unknown, ids)
                      : "no GPU",
          "GPUs (class 0x03...), or an overlay whose 'gpus' lists their bus ids"});
    }
    if (unknown > 0) {
      note(
          fmt::format("{} devices without a class are left out; an overlay may name them in "
                      "'gpus' or 'nics'",
                      unknown));
    }
  }

  void settle_pcie(NcclMachine& machine) {
    Bandwidth widest(0);
    for (const PciDevice& device : machine.devices) {
      if (device.rate) widest = std::max(widest, *device.rate);
    }
    const bool is_guess = widest == Bandwidth(0);
    const Bandwidth assumed = overlay_.pcie ? overlay_.pcie->bandwidth
                              : is_guess    ? default_pcie_lane_rate() * 16
                                            : widest;
    for (PciDevice& device : machine.devices) {
      if (device.rate || device.role == Role::kOther || device.role == Role::kUnknown) continue;
      if (!overlay_.pcie) {
        note(fmt::format(
            "PCIe devices of unknown speed: {} assumed{}", to_string(assumed),
            is_guess ? " (PCIe 3.0 x16, as NCCL does)" : ", the widest that is in the file"));
      }
      device.rate = assumed;
    }
  }

  void settle_gpu_links(NcclMachine& machine) {
    bool has_links = false;
    std::size_t gpus = 0;
    for (PciDevice& device : machine.devices) {
      gpus += device.role == Role::kGpu ? 1 : 0;
      has_links = has_links || !device.links.empty();
      if (overlay_.nvlink) device.links.clear();
    }
    if (has_links && overlay_.nvlink) {
      note("the overlay's 'nvlink' replaces the links between GPUs that the file has");
    } else if (!has_links && !overlay_.nvlink && gpus > 1) {
      note(
          "the file has no links between GPUs: they talk over PCIe, unless an overlay says "
          "'nvlink'");
    }
  }

  std::string file_;
  const Overlay& overlay_;
  std::vector<std::string>& notes_;
};

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
    for (const std::size_t nic : nics) ports.push_back(port_of(nic));
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

  NodeId nvswitch() {
    if (!nvswitch_) {
      Node node = part(NodeKind::kNvSwitch, "nvswitch", 0);
      node.name = fmt::format("nvswitch{}", place_.number);
      node.multicasts = overlay_.nvlink && overlay_.nvlink->multicasts;
      node.reduces = overlay_.nvlink && overlay_.nvlink->reduces;
      nvswitch_ = topology_.add_node(std::move(node));
    }
    return *nvswitch_;
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
      for (const GpuLink& link : machine_.devices[gpu].links) {
        const auto peer = by_bus_id.find(link.target);
        if (link.to == GpuLink::To::kSwitch) {
          to_switch = to_switch + link.rate;
        } else if (peer != by_bus_id.end() && peer->second != gpu) {
          Bandwidth& rate = direct[std::minmax(gpu, peer->second)];
          rate = std::max(rate, link.rate);
        }
      }
      if (to_switch > Bandwidth(0)) {
        join(*nodes_[gpu], nvswitch(), to_switch, kNvswitchLatency, LinkKind::kNvlink, "nvlink");
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
    return {*nodes_[nic], link};
  }

  Topology& topology_;
  const HostPlace& place_;
  const NcclMachine& machine_;
  const Overlay& overlay_;
  std::vector<std::optional<NodeId>> nodes_;  // by device
  std::vector<NodeId> cpus_;
  std::optional<NodeId> nvswitch_;
};

class NcclXmlReader : public Reader {
 public:
  std::string_view format() const override { return "nccl-xml"; }

  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    return path.extension() == ".xml" || trimmed(content).starts_with("<");
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    ReadResult result;
    result.inputs.push_back(path);
    Overlay overlay = read_overlay(options.overlay);
    if (options.overlay) result.inputs.push_back(*options.overlay);
    NcclFile file = parse_nccl_xml(path.string(), std::string(content));
    result.notes = std::move(file.notes);
    MachineSettler settler(path.string(), overlay, result.notes);
    for (NcclMachine& machine : file.machines) settler.settle(machine);
    settle_hosts(path, file, overlay, result.notes);
    result.topology = Topology(overlay.name.value_or(path.stem().string()));
    build_cluster(result.topology, overlay.racks, overlay.network,
                  [&](Topology& topology, const HostPlace& place) {
                    const std::size_t i =
                        static_cast<std::size_t>(place.number) % file.machines.size();
                    return MachineBuilder(topology, place, file.machines[i], overlay).build();
                  });
    return result;
  }

 private:
  /// A file with several machines says itself how many there are. With more than one, each needs
  /// ports with a rate.
  static void settle_hosts(const std::filesystem::path& path, const NcclFile& file,
                           Overlay& overlay, std::vector<std::string>& notes) {
    std::size_t hosts = 0;
    for (const RackGroup& group : overlay.racks) {
      hosts += static_cast<std::size_t>(group.count) * static_cast<std::size_t>(group.hosts);
    }
    if (file.machines.size() > 1 && !overlay.names_hosts) {
      overlay.racks.front().hosts = static_cast<int>(file.machines.size());
      hosts = file.machines.size();
    }
    if (hosts % file.machines.size() != 0) {
      throw ConfigError(ErrorContext{
          path.string(), "overlay, hosts",
          fmt::format("{} hosts for a file with {} machines", hosts, file.machines.size()),
          "a multiple of the machines in the file"});
    }
    if (hosts == 1) return;
    for (const NcclMachine& machine : file.machines) {
      const auto is_nic = [](const PciDevice& d) { return d.role == Role::kNic; };
      if (std::none_of(machine.devices.begin(), machine.devices.end(), is_nic)) {
        throw ConfigError(
            ErrorContext{path.string(), "", fmt::format("{} hosts without a NIC", hosts),
                         "NICs (class 0x02...), or an overlay whose 'nics' lists their bus ids"});
      }
      for (const PciDevice& device : machine.devices) {
        if (is_nic(device) && !device.port_rate && !overlay.nic) {
          throw ConfigError(ErrorContext{
              path.string(), device.where, fmt::format("NIC {} without a speed", device.bus_id),
              "an overlay with 'nic: { bandwidth: ..., latency: ... }'"});
        }
      }
    }
    if (!overlay.nic) {
      notes.push_back(
          fmt::format("{} assumed from NIC to switch; an overlay's 'nic' may say otherwise",
                      to_string(kNicLatency)));
    }
  }
};

}  // namespace

std::unique_ptr<Reader> make_nccl_xml_reader() { return std::make_unique<NcclXmlReader>(); }

}  // namespace rackrail::topology
