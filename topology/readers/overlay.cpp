#include "topology/readers/overlay.hpp"

#include "base/file.hpp"

namespace rackrail::topology {
namespace {

constexpr std::int64_t kMostOverlayHosts = 4096;
constexpr std::int64_t kMostNics = 1024;

std::vector<std::string> texts_of(const ConfigValue& list) {
  std::vector<std::string> texts;
  for (const ConfigValue& element : list.elements()) texts.push_back(element.name());
  return texts;
}

}  // namespace

Overlay read_overlay(const std::optional<std::filesystem::path>& path) {
  Overlay overlay;
  if (!path) return overlay;
  const ConfigValue root = ConfigValue::parse(path->string(), read_file(*path));
  if (!root.is_map()) root.fail("an overlay: a map with 'hosts', 'nic' and so on");
  root.allow_only({"name", "hosts", "racks", "network", "link_classes", "device_classes",
                   "device_class", "memory", "host_staging", "gpus", "nics", "nvlink", "nic",
                   "pcie"});
  if (const ConfigValue* name = root.find("name")) overlay.name = name->name();

  const LinkClasses links = read_link_classes(root.find("link_classes"));
  const DeviceEntries devices = read_device_classes(root.find("device_classes"));
  if (const ConfigValue* device = root.find("device_class")) {
    overlay.device_class = device->name();
    const auto found = devices.find(overlay.device_class);
    if (found != devices.end()) {
      overlay.memory = found->second.memory;
      overlay.figures = found->second.figures;
    }
  }
  if (const ConfigValue* memory = root.find("memory")) overlay.memory = memory->bytes();
  if (const ConfigValue* rate = root.find("host_staging")) overlay.host_staging = rate->bandwidth();
  if (const ConfigValue* gpus = root.find("gpus")) overlay.gpus = texts_of(*gpus);
  if (const ConfigValue* nics = root.find("nics")) {
    if (nics->is_list()) {
      overlay.nics = texts_of(*nics);
    } else {
      overlay.nic_count = nics->count(1, kMostNics);
    }
  }
  if (const ConfigValue* nvlink = root.find("nvlink"))
    overlay.nvlink = read_gpu_fabric_of_one_host(*nvlink);
  if (const ConfigValue* nic = root.find("nic")) overlay.nic = read_link(*nic, links);
  if (const ConfigValue* pcie = root.find("pcie")) overlay.pcie = read_link(*pcie, links);

  const ConfigValue* hosts = root.find("hosts");
  const ConfigValue* racks = root.find("racks");
  overlay.names_hosts = hosts != nullptr || racks != nullptr;
  if (hosts != nullptr && racks != nullptr) {
    hosts->fail("both 'hosts' and 'racks'", "'hosts', or 'racks' with the hosts of each");
  }
  if (hosts != nullptr) {
    overlay.racks.front().hosts = static_cast<int>(hosts->count(1, kMostOverlayHosts));
  }
  if (racks != nullptr) {
    overlay.racks = read_racks(*racks);
    for (const RackGroup& group : overlay.racks) {
      if (!group.type.empty()) racks->fail("a 'type'", "none: all machines are those of the file");
    }
  }
  overlay.network = read_network(root.find("network"), links, overlay.racks, root);
  return overlay;
}

}  // namespace rackrail::topology
