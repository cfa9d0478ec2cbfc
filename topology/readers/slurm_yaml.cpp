// topology.yaml (Slurm 25.05 and later): a list of topologies, each with one of tree, block, flat,
// ring and torus3d.
#include <fmt/format.h>

#include "base/config_tree.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/hostlist.hpp"
#include "topology/readers/slurm.hpp"

namespace rackrail::topology {
namespace {

std::vector<std::string> names_at(const ConfigValue& map, std::string_view key) {
  const ConfigValue* value = map.find(key);
  if (value == nullptr) return {};
  try {
    if (!value->is_list()) return expand_hostlist(value->name(), kMostNetworkNames);
    std::vector<std::string> names;
    for (const ConfigValue& element : value->elements()) {
      std::vector<std::string> more = expand_hostlist(element.name(), kMostNetworkNames);
      names.insert(names.end(), more.begin(), more.end());
      if (names.size() > kMostNetworkNames) break;
    }
    return names;
  } catch (const ConfigError& e) {
    if (!e.context().file.empty()) throw;
    value->fail(e.context().found, e.context().expected);
  }
}

void read_tree(const ConfigValue& tree, SlurmTopology& topology) {
  tree.allow_only({"switches"});
  for (const ConfigValue& one : tree.require("switches").elements()) {
    one.allow_only({"switch", "children", "nodes"});
    topology.switches.push_back({one.require("switch").name(), names_at(one, "children"),
                                 names_at(one, "nodes"), one.where()});
  }
}

void read_block(const ConfigValue& block, SlurmTopology& topology) {
  block.allow_only({"block_sizes", "blocks"});
  for (const ConfigValue& one : block.require("blocks").elements()) {
    one.allow_only({"block", "nodes"});
    topology.blocks.push_back({one.require("block").name(), names_at(one, "nodes"), one.where()});
  }
}

bool has_network(const ConfigValue& topology) {
  return topology.find("tree") != nullptr || topology.find("block") != nullptr;
}

/// The default of the cluster if it says something of the network, else the first that does.
const ConfigValue* chosen(const std::vector<ConfigValue>& topologies) {
  const ConfigValue* first = nullptr;
  for (const ConfigValue& one : topologies) {
    one.allow_only({"topology", "cluster_default", "tree", "block", "flat", "ring", "torus3d"});
    if (!has_network(one)) continue;
    const ConfigValue* is_default = one.find("cluster_default");
    if (is_default != nullptr && is_same_in_any_case(is_default->text(), "true")) return &one;
    if (first == nullptr) first = &one;
  }
  return first;
}

}  // namespace

SlurmTopology parse_slurm_yaml(const std::string& file, const std::string& content) {
  const ConfigValue root = ConfigValue::parse(file, content);
  if (!root.is_list())
    root.fail("a list of topologies, each with 'topology' and 'tree' or 'block'");
  const ConfigValue* one = chosen(root.elements());
  if (one == nullptr) {
    root.fail("no topology with 'tree' or 'block'",
              "one of these: others tell nothing of switches");
  }
  SlurmTopology topology;
  if (const ConfigValue* tree = one->find("tree")) {
    read_tree(*tree, topology);
  } else {
    read_block(one->require("block"), topology);
  }
  if (root.elements().size() > 1) {
    topology.notes.push_back(fmt::format("of {} topologies '{}' is read", root.elements().size(),
                                         one->require("topology").text()));
  }
  return topology;
}

}  // namespace rackrail::topology
