#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/readers/nccl_cluster.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

/// A file with several machines says itself how many there are. With more than one, each needs
/// ports with a rate.
void settle_hosts(const std::filesystem::path& path, const NcclFile& file, Overlay& overlay,
                  std::vector<std::string>& notes) {
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
    const auto is_nic = [](const PciDevice& d) { return d.role == PciDevice::Role::kNic; };
    if (std::none_of(machine.devices.begin(), machine.devices.end(), is_nic)) {
      throw ConfigError(
          ErrorContext{path.string(), "", fmt::format("{} hosts without a NIC", hosts),
                       "NICs in the file, or an overlay whose 'nics' lists their bus ids or "
                       "is their number: 'nics: 8'"});
    }
    for (const PciDevice& device : machine.devices) {
      if (is_nic(device) && !device.port_rate && !overlay.nic) {
        throw ConfigError(ErrorContext{path.string(), device.where,
                                       fmt::format("NIC {} without a speed", name_of(device)),
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

}  // namespace

Overlay overlay_of(const ReadOptions& options) {
  Overlay overlay = read_overlay(options.overlay);
  if (!options.device_class.empty() &&
      !is_same_in_any_case(options.device_class, overlay.device_class)) {
    overlay.device_class = options.device_class;
    overlay.figures = nullptr;
  }
  return overlay;
}

ReadResult cluster_of_machines(const std::filesystem::path& path, NcclFile file,
                               const ReadOptions& options) {
  ReadResult result;
  result.inputs.push_back(path);
  if (options.overlay) result.inputs.push_back(*options.overlay);
  Overlay overlay = overlay_of(options);
  result.notes = std::move(file.notes);
  for (NcclMachine& machine : file.machines) {
    settle_machine(machine, path.string(), overlay, result.notes);
  }
  settle_hosts(path, file, overlay, result.notes);
  result.topology = Topology(overlay.name.value_or(path.stem().string()));
  build_cluster(result.topology, overlay.racks, overlay.network,
                [&](Topology& topology, const HostPlace& place) {
                  const std::size_t i =
                      static_cast<std::size_t>(place.number) % file.machines.size();
                  return add_machine(topology, place, file.machines[i], overlay);
                });
  return result;
}

}  // namespace rackrail::topology
