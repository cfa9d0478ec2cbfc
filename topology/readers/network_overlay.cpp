#include "topology/readers/network_overlay.hpp"

#include "base/file.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {

LinkClass undescribed_tier(const std::string& tier) {
  LinkClass link;
  link.latency = tier == "nic" ? kNicLatency : kUplinkLatency;
  return link;
}

NetworkOverlay read_network_overlay(const std::optional<std::filesystem::path>& path) {
  NetworkOverlay overlay;
  if (!path) return overlay;
  const ConfigValue root = ConfigValue::parse(path->string(), read_file(*path));
  if (!root.is_map()) root.fail("an overlay: a map with 'host' and 'tiers'");
  root.allow_only({"name", "link_classes", "device_classes", "host", "tiers"});
  if (const ConfigValue* name = root.find("name")) overlay.name = name->name();
  const LinkClasses links = read_link_classes(root.find("link_classes"));
  const DeviceEntries devices = read_device_classes(root.find("device_classes"));
  if (const ConfigValue* host = root.find("host")) {
    overlay.host = read_node_type(*host, links, devices);
    if (overlay.host->nvlink && overlay.host->nvlink->hosts > 1) {
      host->require("nvlink").require("hosts").fail("'nvlink.hosts' in an overlay",
                                                    "it in a cluster file only");
    }
    if (overlay.host->ports_per_nic > 1) {
      host->require("nics").require("ports").fail(
          "'nics.ports' in an overlay", "'nics.count' of all ports: the file says where they go");
    }
    if (overlay.host->nics == 0) {
      host->fail("no 'nics'", "'nics', which join the host to the network");
    }
  }
  if (const ConfigValue* tiers = root.find("tiers")) {
    for (const auto& [tier, value] : tiers->members()) {
      overlay.tiers.emplace(tier, read_link_over(value, links, undescribed_tier(tier)));
    }
  }
  return overlay;
}

}  // namespace rackrail::topology
