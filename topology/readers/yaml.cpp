// rackrail's own cluster files: the hierarchical form (classes, node types, racks, network) that
// people write, and the flat one (see flat_yaml.cpp). docs/reference/cluster-file.md has both.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "topology/readers/cluster_spec.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

std::map<std::string, NodeType> read_node_types(const ConfigValue& section,
                                                const LinkClasses& links,
                                                const DeviceEntries& devices) {
  std::map<std::string, NodeType> types;
  for (const auto& [name, value] : section.members()) {
    types.emplace(name, read_node_type(value, links, devices));
  }
  if (types.empty()) section.fail("no node type", "at least one");
  return types;
}

/// Each rack group names its type; where there is only one, the name may be left out.
void settle_types(std::vector<RackGroup>& racks, const std::map<std::string, NodeType>& types,
                  const ConfigValue& section) {
  for (RackGroup& group : racks) {
    if (group.type.empty() && types.size() == 1) group.type = types.begin()->first;
    if (!types.contains(group.type)) {
      std::string names;
      for (const auto& [name, type] : types) names += (names.empty() ? "" : ", ") + name;
      section.fail(group.type.empty() ? "no 'type'" : fmt::format("type '{}'", group.type),
                   "a node type: " + names);
    }
  }
}

/// A machine that others must reach has NICs.
void require_nics(const std::vector<RackGroup>& racks, const std::map<std::string, NodeType>& types,
                  const ConfigValue& section) {
  std::int64_t hosts = 0;
  for (const RackGroup& group : racks) hosts += std::int64_t{group.count} * group.hosts;
  for (const RackGroup& group : racks) {
    if (hosts > 1 && types.at(group.type).nics == 0) {
      section.require(group.type)
          .fail(fmt::format("no 'nics', and {} hosts", hosts),
                "'nics', which only a host that is alone may lack");
    }
  }
}

/// NVLink domains of several hosts fill their racks.
void require_whole_domains(const std::vector<RackGroup>& racks,
                           const std::map<std::string, NodeType>& types,
                           const ConfigValue& section) {
  for (const RackGroup& group : racks) {
    const NodeType& type = types.at(group.type);
    if (type.nvlink && group.hosts % type.nvlink->hosts != 0) {
      section.fail(fmt::format("racks of {} hosts", group.hosts),
                   fmt::format("a multiple of the {} hosts of an NVLink domain of '{}'",
                               type.nvlink->hosts, group.type));
    }
  }
}

Topology read_hierarchical_yaml(const ConfigValue& root) {
  root.allow_only({"name", "link_classes", "device_classes", "node_types", "racks", "network"});
  const LinkClasses links = read_link_classes(root.find("link_classes"));
  const DeviceEntries devices = read_device_classes(root.find("device_classes"));
  const std::map<std::string, NodeType> types =
      read_node_types(root.require("node_types"), links, devices);
  std::vector<RackGroup> racks = read_racks(root.require("racks"));
  settle_types(racks, types, root.require("racks"));
  require_nics(racks, types, root.require("node_types"));
  require_whole_domains(racks, types, root.require("racks"));
  const Network network = read_network(root.find("network"), links, racks, root);
  Topology topology(root.require("name").name());
  build_cluster(topology, racks, network, [&](Topology& t, const HostPlace& place) {
    return add_host_of_type(t, place, types.at(place.type));
  });
  return topology;
}

class YamlReader : public Reader {
 public:
  std::string_view format() const override { return "yaml"; }

  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    if (path.extension() == ".yaml" || path.extension() == ".yml") return true;
    for (const std::string_view key : {"nodes:", "links:", "racks:", "node_types:"}) {
      if (content.starts_with(key) || content.find("\n" + std::string(key)) != content.npos) {
        return true;
      }
    }
    return false;
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    refuse_overlay(path, options);
    const ConfigValue root = ConfigValue::parse(path.string(), std::string(content));
    if (!root.is_map()) root.fail("a cluster: 'node_types' and 'racks', or 'nodes' and 'links'");
    const bool is_flat = root.find("nodes") != nullptr || root.find("links") != nullptr;
    return {is_flat ? read_flat_yaml(root) : read_hierarchical_yaml(root), {}, {path}};
  }
};

}  // namespace

std::unique_ptr<Reader> make_yaml_reader() { return std::make_unique<YamlReader>(); }

}  // namespace rackrail::topology
